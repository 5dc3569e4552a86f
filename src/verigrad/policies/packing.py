"""Sequences laid end to end in one row, what they begin with in common once, and its branches.

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
from typing import NamedTuple

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

    def behind(self, first: int) -> "Packed":
        """The row without its first tokens, which all others continue."""
        return Packed(
            token_ids=self.token_ids[first:],
            position=self.position[first:],
            end=self.end[first:] - first,
        )


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


SMALL = 128
"""Branches of up to so many tokens are one block: fewer and larger products."""

LONG = 1024
"""Most tokens of a block that continues others: what it attends to needs a table of pairs, in which
the later half of a long one would be empty."""


class Block(NamedTuple):
    """A part of the row whose tokens attend to it, and to all of the blocks that it continues."""

    start: int
    stop: int
    before: tuple[int, ...]
    """Numbers of the blocks that it continues, from the start of its sequences on."""

    branches: bool
    """Whether some token of it is not continued by all that follow in the block."""


def blocks_of(end: Sequence[int], small: int = SMALL) -> list[Block]:
    """Cut a row where it branches, and what continues others after LONG tokens.

    Args:
        end: of each token; see :class:`Packed`.
        small: branches of up to so many tokens, together with others beside them, stay whole.

    Returns:
        The blocks, in the order of the row, of which they leave nothing out.

    Example: a prompt of 200 tokens with two completions of 100 is [0, 200), and after it [200, 300)
    and [300, 400), which both continue it.
    """
    blocks: list[Block] = []

    def add(start: int, stop: int, before: tuple[int, ...]) -> None:
        blocks.append(Block(start, stop, before, min(end[start:stop]) < stop))

    waiting: list[tuple[int, int, tuple[int, ...]]] = [(0, len(end), ())]
    while waiting:
        start, stop, before = waiting.pop()
        if start == stop:
            continue
        if stop - start <= small:
            add(start, stop, before)
            continue
        if end[start] - start <= small:
            # Branches side by side that are small enough together.
            behind = end[start]
            while behind < stop and end[behind] - start <= small:
                behind = end[behind]
            add(start, behind, before)
            waiting.append((behind, stop, before))
            continue
        behind = start + 1
        most = min(end[start], start + LONG) if before else end[start]
        while behind < most and end[behind] == end[start]:
            behind += 1
        add(start, behind, before)
        waiting.append((end[start], stop, before))
        waiting.append((behind, end[start], (*before, len(blocks) - 1)))
    return blocks


def may_attend(
    packed: Packed,
    block: Block,
    before: Sequence[Block],
    window: int | None,
    prefix: int = 0,
) -> Tensor | None:
    """Which keys each token of a block attends to.

    Args:
        packed: the tokens; positions count from the start of the prefix, if there is one.
        block: whose tokens ask.
        before: the blocks that it continues.
        window: how many positions back a sliding window reaches, its own included; None for all.
        prefix: how many tokens stand before the row, at positions from 0.

    Returns:
        ``[tokens of the block, keys]`` bool, the keys being those of the prefix, of the blocks
        before and of the block; None where it has nothing before it and each token sees all up to
        its own.
    """
    behind = sum(some.stop - some.start for some in before) + prefix
    if window is None and behind == 0 and not block.branches:
        return None
    device = packed.end.device
    own = torch.arange(block.start, block.stop, device=device)
    query = own.unsqueeze(1)
    inside = (own <= query) & (query < packed.end[own])
    allowed = torch.cat([inside.new_ones(len(own), behind), inside], dim=1)
    if window is None:
        return allowed
    position = torch.cat(
        [
            torch.arange(prefix, device=device),
            *(packed.position[some.start : some.stop] for some in before),
            packed.position[own],
        ]
    )
    return allowed & (packed.position[own].unsqueeze(1) - position < window)
