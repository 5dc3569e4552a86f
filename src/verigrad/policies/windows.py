"""How far back the layers of a Hugging Face model attend."""

from typing import Any
from weakref import WeakKeyDictionary

import torch

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
    tokens = torch.arange(6, device=model.device).unsqueeze(0)
    found = []
    try:
        for size in (1, 6):
            config.sliding_window = size
            found.append(model(input_ids=tokens, use_cache=False).logits)
    finally:
        config.sliding_window = window
    return None if torch.equal(*found) else window
