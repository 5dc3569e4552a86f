"""Prompts and completions laid end to end in one row, and the masks that keep them apart.

A prompt stands in the row once, however many completions continue it. A token may attend to the
tokens of its own prompt up to its own position, and to the earlier tokens of its own completion;
positions count from the start of each prompt. Every layer's output at a position depends only on
what it attends to and at which positions, so hidden states, log-probs and gradients are those of
the separate sequences (Prefix Grouper, 2506.05433, states the argument). There is no padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PROMPT = -1
"""The row number of tokens that belong to a prompt."""


@dataclass(frozen=True, kw_only=True)
class Packed:
    """Tokens end to end.

    Example: the prompt (7, 8) with completions (5, 6) and (9,), whose last tokens predict nothing:
        prompt part:      group [0, 0], row [-1, -1], position [0, 1]
        completion part:  group [0],    row [0],      position [2]
    """

    token_ids: Tensor
    """``[N]`` int64."""

    group: Tensor
    """``[N]``: the prompt that a token belongs to or continues."""

    row: Tensor
    """``[N]``: the completion that a token belongs to, or PROMPT."""

    position: Tensor
    """``[N]``: counted from the start of the prompt."""


def pack_prompts(prompts: Sequence[Sequence[int]], device: str) -> Packed:
    """Lay prompts end to end.

    Args:
        prompts: token ids of each, at least one token.
        device: where the tensors live.
    """
    lengths = torch.tensor([len(ids) for ids in prompts])
    group = torch.arange(len(prompts)).repeat_interleave(lengths)
    starts = lengths.cumsum(0) - lengths
    position = torch.arange(int(lengths.sum())) - starts[group]
    return Packed(
        token_ids=torch.tensor([token for ids in prompts for token in ids], device=device),
        group=group.to(device),
        row=torch.full_like(group, PROMPT).to(device),
        position=position.to(device),
    )


def pack_completions(
    token_ids: Tensor, fed: Tensor, group_index: Tensor, prompt_lengths: Tensor
) -> Packed:
    """Lay completions end to end, row by row.

    Args:
        token_ids: ``[B, T]``.
        fed: ``[B, T]`` bool, the tokens to lay out, a prefix of each row.
        group_index: ``[B]``, the prompt each row continues.
        prompt_lengths: ``[P]``.
    """
    row, column = fed.nonzero(as_tuple=True)
    group = group_index[row]
    return Packed(
        token_ids=token_ids[fed],
        group=group,
        row=row,
        position=prompt_lengths[group] + column,
    )


def join(first: Packed, second: Packed) -> Packed:
    """Both, one after the other."""
    return Packed(
        token_ids=torch.cat([first.token_ids, second.token_ids]),
        group=torch.cat([first.group, second.group]),
        row=torch.cat([first.row, second.row]),
        position=torch.cat([first.position, second.position]),
    )


def may_attend(queries: Packed, keys: Packed, window: int | None) -> Tensor:
    """Which key each query attends to: ``[queries, keys]`` bool.

    Args:
        queries: the tokens that attend.
        keys: the tokens attended to.
        window: how many positions back a sliding window reaches, its own included; None for all.
    """
    distance = queries.position.unsqueeze(1) - keys.position
    same_group = queries.group.unsqueeze(1) == keys.group
    same_row = (keys.row == PROMPT) | (queries.row.unsqueeze(1) == keys.row)
    allowed = same_group & same_row & (distance >= 0)
    return allowed if window is None else allowed & (distance < window)


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed and the lowest number elsewhere, as attention layers add it."""
    lowest = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=allowed.device)
    return torch.where(allowed, torch.zeros_like(lowest), lowest)
