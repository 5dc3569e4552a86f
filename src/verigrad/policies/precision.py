"""Mixed precision: the layers of a model compute in bfloat16, its weights and its head in float32.

Only the model's forward pass is another one: ``torch.autocast`` is on within it, off again in the
head, and nowhere else. Whoever runs the model, to train, to generate or alone, therefore gets the
same precision, and logits in float32. So are the weights, their gradients and the optimiser: a
bfloat16 number has 8 significant bits, and most updates are smaller than its last one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from verigrad.policies.base import Continuation
from verigrad.types import Prompt

Precision = Literal["float32", "bfloat16"]
"""What the layers compute in."""

PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def lower_layers(model: Any) -> bool:
    """Make a transformers model compute in bfloat16 from now on, apart from its vocabulary head.

    Args:
        model: a causal language model in float32; its parameters are left as they are.

    Returns:
        Whether that was done: not for a model whose head is not a layer of its own.
    """
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        return False
    device = head.weight.device.type
    # Some models run their layers themselves, and not through the base model.
    for module in {model, model.base_model}:
        module.forward = partial(_in_bfloat16, module.forward, device)
    head.forward = partial(_in_float32, head.forward, device)  # type: ignore[method-assign]
    return True


def _in_bfloat16(forward: Callable[..., Any], device: str, *arguments: Any, **named: Any) -> Any:
    # Each weight is used once in a pass, so that keeping what it was cast to would only take room.
    with torch.autocast(device, torch.bfloat16, cache_enabled=False):
        return forward(*arguments, **named)


def _in_float32(forward: Callable[[Tensor], Tensor], device: str, hidden: Tensor) -> Tensor:
    with torch.autocast(device, enabled=False):
        return forward(hidden.float())


class CastOnce:
    """A continuation of a model with such layers, whose weights are cast once and not per token."""

    def __init__(self, model: Any, start: Callable[[], Continuation]) -> None:
        """Cast the weights as they are now, and start.

        Args:
            model: the model that the continuation runs.
            start: makes the continuation.
        """
        self._weights = {layer: layer.weight.detach().bfloat16() for layer in _products(model)}
        with _in_place(self._weights):
            self._rows = start()

    def logits(self) -> tuple[Tensor, Tensor]:
        """See ``policies.base.Continuation``."""
        return self._rows.logits()

    def admit(self, prompts: Sequence[Prompt], completions: int) -> None:
        """See ``policies.base.Continuation``."""
        with _in_place(self._weights):
            self._rows.admit(prompts, completions)

    def advance(self, rows: Tensor, token_ids: Tensor) -> None:
        """See ``policies.base.Continuation``."""
        with _in_place(self._weights):
            self._rows.advance(rows, token_ids)


def _products(model: Any) -> list[Any]:
    """The layers that only multiply by their weight, which autocast casts every time."""
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    return [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    ]


@contextmanager
def _in_place(weights: dict[Any, Tensor]) -> Iterator[None]:
    """Let layers use other weights inside the block."""
    own = {layer: layer.weight for layer in weights}
    try:
        for layer, weight in weights.items():
            layer._parameters["weight"] = weight
        yield
    finally:
        for layer, weight in own.items():
            layer._parameters["weight"] = weight
