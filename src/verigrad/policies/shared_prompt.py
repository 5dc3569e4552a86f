"""A prompt that is run once for several passes, because its group does not fit into one.

Its keys and values, and what predicts the first token after it, become leaves; every pass adds to
their gradients; at last these go backwards through the prompt, once. That is the chain rule, so the
gradient is that of a single pass, and the memory is that of one pass and the prompt.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from verigrad.policies.attention import KeysValues, Prefix


@dataclass(frozen=True, kw_only=True)
class SharedPrompt:
    """What passes over completions of one prompt have in common."""

    prefix: Prefix
    """Leaves: keys and values of every attention layer."""

    last: Tensor
    """A leaf, ``[1, H]`` or ``[1, V]``: the last token's hidden state, or its logits."""

    sources: tuple[Tensor, ...]
    """What the leaves were made from; with the prompt's graph where gradients are wanted."""

    leaves: tuple[Tensor, ...]
    """One for each source."""

    @staticmethod
    def of(tokens: int, last: Tensor, layers: dict[int, KeysValues]) -> "SharedPrompt":
        """Cut a prompt of some tokens off from what continues it."""
        sources = (last, *(side for sides in layers.values() for side in sides))
        leaves = tuple(source.detach().requires_grad_(source.requires_grad) for source in sources)
        pairs = zip(leaves[1::2], leaves[2::2], strict=True)
        return SharedPrompt(
            prefix=Prefix(tokens, dict(zip(layers, pairs, strict=True))),
            last=leaves[0],
            sources=sources,
            leaves=leaves,
        )

    def backward(self) -> None:
        """Add what the passes so far say of the prompt to the parameters' gradients; once."""
        reached = [
            (source, leaf.grad)
            for source, leaf in zip(self.sources, self.leaves, strict=True)
            if leaf.grad is not None
        ]
        if reached:
            sources, gradients = zip(*reached, strict=True)
            torch.autograd.backward(sources, gradients)
