"""How far back the layers of a Hugging Face model attend."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

Window = int | None
"""How many positions back a layer reaches, its own included; None for all."""

_ONLY: WeakKeyDictionary[Any, Window] = WeakKeyDictionary()


def windows_of(model: Any) -> Window | dict[str, Window]:
    """The window of all layers, or that of each kind where the configuration names kinds."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        return _only_window(model)
    windows = {"full_attention": None, "sliding_attention": config.sliding_window}
    return {kind: windows[kind] for kind in set(kinds)}


def _only_window(model: Any) -> Window:
    """The window of a model whose layers are all of one kind, found out once."""
    if model not in _ONLY:
        _ONLY[model] = _window_in_use(model)
    return _ONLY[model]


@torch.no_grad()
def _window_in_use(model: Any) -> Window:
    """What the configuration says, if the model minds it: any key may stand in a configuration."""
    config = model.config.get_text_config()
    window: Window = getattr(config, "sliding_window", None)
    if window is None:
        return None
    try:
        config.sliding_window = 1
        narrow = _inside(model)
        config.sliding_window = 6
        wide = _inside(model)
    finally:
        config.sliding_window = window
    return None if all(map(torch.equal, narrow, wide)) else window


def _inside(model: Any) -> list[Tensor]:
    """What every module is given when six tokens go through the model.

    Its logits say less: layers whose output is still multiplied by zeros change none of them.
    """
    given: list[Tensor] = []

    def look(_: Any, inputs: tuple[Any, ...]) -> None:
        given.extend(value for value in inputs if isinstance(value, Tensor))

    hook = register_module_forward_pre_hook(look)
    try:
        model(input_ids=torch.arange(6, device=model.device).unsqueeze(0), use_cache=False)
    finally:
        hook.remove()
    return given
