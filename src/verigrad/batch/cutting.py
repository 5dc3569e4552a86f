"""A batch cut into minibatches, which are updates of their own, and passes, which are not."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise, takewhile
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.batch.carriers import Batch, Tokens
from verigrad.core.aggregation import token_mean

SomeTokens = TypeVar("SomeTokens", bound=Tokens)


def weighted(batch: Batch, algorithm: Algorithm, chosen: Tensor | None) -> Batch:
    """The batch with the weights of its own rows; tokens that are not chosen have no policy loss.

    Leaving tokens out of the policy loss does not change the denominators.
    """
    weights = algorithm.aggregation(batch.mask, batch.group_index).to(batch.advantages)
    in_loss = algorithm.divergence is not None and algorithm.divergence.estimator is not None
    bonus = token_mean(batch.mask, batch.group_index).to(batch.advantages)
    return replace(
        batch,
        weights=weights if chosen is None else torch.where(chosen, weights, 0.0),
        kl_weights=weights if in_loss else None,
        entropy_weights=bonus if algorithm.entropy is not None else None,
    )


def minibatches(batch: Batch, algorithm: Algorithm, order: Sequence[int]) -> Iterator[Batch]:
    """Share the rows of a step among the updates of one epoch.

    Each minibatch has the weights of its own rows, because each is an optimiser update of its own;
    advantages, old and reference log-probs stay those of the whole step.

    Args:
        batch: of the whole step.
        algorithm: says into how many; fewer where there are fewer rows.
        order: the rows of the batch, shuffled.

    Yields:
        Minibatches of sizes that differ by at most one row.
    """
    number = min(algorithm.minibatches, len(order))
    if number == 1:
        yield batch
        return
    chosen = batch.weights != 0 if algorithm.top_entropy is not None else None
    for part in range(number):
        rows = sorted(order[part::number])
        width = max(1, int(batch.lengths[rows].max()))
        yield weighted(
            select_rows(batch, rows), algorithm, None if chosen is None else chosen[rows, :width]
        )


class Pass(NamedTuple):
    """Rows that are scored together."""

    rows: list[int]

    tokens: int
    """What the pass costs; see :func:`passes_of`."""

    group: int | None = None
    """Where the pass is a part of one group that does not fit into a pass: which group."""

    prompt: int = 0
    """Of the tokens of such a pass, those of the prompt."""

    last: bool = False
    """Whether it is the last part of the group."""


def passes_of(tokens: Tokens, rows: Sequence[int], token_budget: int) -> Iterator[Pass]:
    """Cut rows into passes, which are scored together.

    A pass costs the tokens of its prompts, each once, plus those of its completions, where what
    those of one prompt begin with together counts once. Groups stay whole where they fit; a group
    that is larger than the budget is cut between rows into passes of its own, each of which costs
    its prompt too. A row larger than the budget is a pass of its own.

    Args:
        tokens: whose rows are cut.
        rows: those that take part.
        token_budget: most tokens in a pass, at least 1.

    Yields:
        Passes, whose gradients add up to that of the whole, because weights are fixed beforehand.
    """
    ids = tokens.token_ids.tolist()
    completions = [row[:length] for row, length in zip(ids, tokens.lengths.tolist(), strict=True)]
    groups = tokens.group_index.tolist()
    by_group: dict[int, list[int]] = {}
    # Side by side, rows that begin alike share the most, and a row that is new to a pass shares
    # with the one before it all that it shares with any.
    for row in sorted(rows, key=lambda row: (groups[row], completions[row])):
        by_group.setdefault(groups[row], []).append(row)
    current: list[int] = []
    used = 0
    for group, members in by_group.items():
        prompt = len(tokens.prompts[group].token_ids)
        added = _added([completions[row] for row in members])
        whole = prompt + sum(added)
        if current and used + whole > token_budget:
            yield Pass(sorted(current), used)
            current, used = [], 0
        if whole > token_budget and len(members) > 1:
            lengths = [len(completions[row]) for row in members]
            rows_of_group = list(zip(members, lengths, added, strict=True))
            yield from _cut(group, rows_of_group, prompt, token_budget)
        else:
            current, used = current + members, used + whole
    if current:
        yield Pass(sorted(current), used)


def _cut(
    group: int, lengths: Sequence[tuple[int, int, int]], prompt: int, token_budget: int
) -> Iterator[Pass]:
    """Passes of one group.

    Args:
        group: its number.
        lengths: of each row its number, its tokens, and those that the row before does not have.
        prompt: tokens of the prompt.
        token_budget: most tokens in a pass.
    """
    current: list[int] = []
    used = 0
    for row, length, added in lengths:
        if current and used + added > token_budget:
            yield Pass(sorted(current), used, group, prompt)
            current, used = [], 0
        used += added if current else prompt + length
        current.append(row)
    yield Pass(sorted(current), used, group, prompt, last=True)


def _added(completions: Sequence[Sequence[int]]) -> list[int]:
    """How many tokens each has beyond what it begins with together with the one before."""
    return [len(ids) - _shared(before, ids) for before, ids in pairwise([(), *completions])]


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens both begin with."""
    same = map(operator.eq, first, second)
    return sum(1 for _ in takewhile(bool, same))


def select_rows(tokens: SomeTokens, rows: Sequence[int]) -> SomeTokens:
    """Some rows, in the given order, with the prompts they need and no spare columns.

    Nothing is computed again: weights and advantages stay those of the whole.
    """
    index = torch.tensor(rows, device=tokens.group_index.device)
    used, group_index = torch.unique(tokens.group_index[index], return_inverse=True)
    width = max(1, int(tokens.lengths[index].max()))
    picked: dict[str, Any] = {
        field.name: value[index, :width] if value.dim() == 2 else value[index]
        for field in fields(tokens)
        if isinstance(value := getattr(tokens, field.name), Tensor)
    }
    picked["group_index"] = group_index
    prompts = tuple(tokens.prompts[group] for group in used.tolist())
    return replace(tokens, prompts=prompts, **picked)
