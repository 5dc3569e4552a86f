"""Sequences laid end to end in one row, what they begin with in common once, and the masks for it.

Sequences that begin alike are the branches of a tree: a prompt stands in the row once, however many
completions continue it, and so does whatever completions begin with together. The tokens stand in
the order of a walk through the tree, depth first, so that everything that continues a token follows
it directly. A token may attend to those of its own sequence up to its own position; positions count
from the start of each sequence. Every layer's output at a position depends only on what it attends
to and at which positions, so hidden states, log-probs and gradients are those of the separate
sequences (Prefix Grouper, 2506.05433, states the argument for prompts). There is no padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Tokens end to end.

    Example: the sequences (7, 8, 5) and (7, 8, 9, 6) stand as
        token_ids [7, 8, 5, 9, 6], position [0, 1, 2, 2, 3], end [5, 5, 3, 5, 5]
    """

    token_ids: Tensor
    """``[N]`` int64."""

    position: Tensor
    """``[N]``: counted from the start of the sequence."""

    end: Tensor
    """``[N]``: the place behind the last token that continues this one, itself included."""


def pack(sequences: Sequence[Sequence[int]], device: str) -> tuple[Packed, Tensor]:
    """Lay sequences end to end, each distinct beginning once.

    Args:
        sequences: token ids of each, at least one token; S of them, the longest of W tokens.
        device: where the tensors live.

    Returns:
        The tokens, and the place in the row of each token of each sequence: ``[S, W]`` int64,
        without meaning beyond a sequence's length.
    """
    order = sorted(range(len(sequences)), key=lambda index: tuple(sequences[index]))
    lengths = torch.tensor([len(sequences[index]) for index in order])
    inside = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    flat = torch.tensor(list(chain.from_iterable(sequences[index] for index in order)))
    token_ids = torch.zeros(inside.shape, dtype=torch.int64).masked_scatter(inside, flat)
    # In sorted order, what a sequence shares with any before it, it shares with the one before.
    new = inside.clone()
    alike = (token_ids[1:] == token_ids[:-1]) & inside[1:] & inside[:-1]
    new[1:] &= ~alike.cumprod(dim=1).bool()
    numbered = torch.where(new, new.flatten().cumsum(0).view(new.shape) - 1, 0)
    places = numbered.cummax(dim=0).values
    behind = places.gather(1, lengths.unsqueeze(1) - 1) + 1
    end = torch.zeros(int(new.sum()), dtype=torch.int64).scatter_reduce(
        0, places[inside], behind.expand_as(places)[inside], "amax"
    )
    packed = Packed(
        token_ids=token_ids[new].to(device),
        position=new.nonzero()[:, 1].to(device),
        end=end.to(device),
    )
    return packed, places[torch.tensor(order).argsort()].to(device)


def distinct(places: Tensor, token_ids: Tensor, vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Each pair of a place and a token that follows it once.

    Args:
        places: ``[N]`` int64.
        token_ids: ``[N]`` int64, each below ``vocabulary``.
        vocabulary: how many tokens there are.

    Returns:
        The places and the tokens of the pairs, by place and then by token, ``[M]`` each; and which
        of the pairs each given one is, ``[N]``.
    """
    pairs, back = torch.unique(places * vocabulary + token_ids, return_inverse=True)
    return pairs // vocabulary, pairs % vocabulary, back


def may_attend(packed: Packed, window: int | None) -> Tensor:
    """Which token each token attends to: ``[N, N]`` bool, queries by keys.

    Args:
        packed: the tokens.
        window: how many positions back a sliding window reaches, its own included; None for all.
    """
    place = torch.arange(len(packed.end), device=packed.end.device)
    query = place.unsqueeze(1)
    allowed = (place <= query) & (query < packed.end)
    if window is None:
        return allowed
    return allowed & (packed.position.unsqueeze(1) - packed.position < window)


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed and the lowest number elsewhere, as attention layers add it."""
    lowest = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=allowed.device)
    return torch.where(allowed, torch.zeros_like(lowest), lowest)
