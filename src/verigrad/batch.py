"""Groups and advantages -> tensors, and the tensors cut into passes.

A batch holds completion tokens only, and each prompt once. Entry ``t`` of every field ``[B, T]``
speaks about completion token ``t``. Masks come from lengths, never from token ids: the id that pads
is often the id that stops.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verigrad.algorithms import Algorithm, Scores
from verigrad.errors import BadNumbersError
from verigrad.types import Group, Prompt, Rollout


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one optimiser update is computed from.

    Example: one prompt, two completions (5, 6, stop=2) and (7,), padded to T = 3:
        token_ids [[5, 6, 2], [7, 0, 0]], lengths [3, 1], mask [[1, 1, 1], [1, 0, 0]],
        prompts (Prompt(problem_id="p", token_ids=(1, 4)),), group_index [0, 0]
    """

    prompts: tuple[Prompt, ...]
    """Each prompt once, ``P`` of them."""

    group_index: Tensor
    """``[B]`` int64: which prompt each row continues. Rows of one prompt stand together."""

    token_ids: Tensor
    """``[B, T]`` int64, 0 beyond a row's length."""

    lengths: Tensor
    """``[B]`` int64, tokens of each completion."""

    mask: Tensor
    """``[B, T]`` bool, true on tokens that the policy chose and that train."""

    sampling_log_probs: Tensor
    """``[B, T]``, by the engine while sampling; 0 beyond a row's length."""

    old_log_probs: Tensor | None
    """``[B, T]``, by the trainer before its first update; None when the only update on this batch
    is the first, whose own log-probs they are."""

    advantages: Tensor
    """``[B, T]``, 0 off the mask."""

    weights: Tensor
    """``[B, T]``, each token's weight in the policy loss; fixed for the whole update."""

    def row_trains(self) -> Tensor:
        """``[B]`` bool: some token of the row has a non-zero weight times advantage."""
        return (self.weights * self.advantages != 0).any(dim=1)


@dataclass(frozen=True, kw_only=True)
class LossOutput:
    """The loss of some rows and what was seen there, as sums that add up over passes and ranks."""

    loss: Tensor
    """Scalar; the sum over passes is the loss of the batch."""

    tokens: int
    """Tokens that trained."""

    clipped: int
    """Of those, how many had no gradient because of the loss's bounds."""

    entropy: float
    """Sum over those tokens of the entropy of the policy, in nats."""

    mismatch: float
    """Sum over those tokens of |log-prob now - log-prob while sampling|, before the update."""

    largest_mismatch: float
    """Largest of these differences."""

    def __add__(self, other: "LossOutput") -> "LossOutput":
        """The output of both parts together."""
        return LossOutput(
            loss=self.loss + other.loss,
            tokens=self.tokens + other.tokens,
            clipped=self.clipped + other.clipped,
            entropy=self.entropy + other.entropy,
            mismatch=self.mismatch + other.mismatch,
            largest_mismatch=max(self.largest_mismatch, other.largest_mismatch),
        )


def make_batch(
    groups: Sequence[Group],
    algorithm: Algorithm,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Batch | None:
    """Lay out the scored rollouts of a step and give each token its advantage and weight.

    A failed rollout is left out before anything is computed, so every mean and denominator is that
    of a step in which it was never drawn.

    Args:
        groups: the groups of one step.
        algorithm: gives advantages and weights.
        device: where the tensors live.
        dtype: of the float tensors; advantages and weights are computed in float64 first.

    Returns:
        The batch, or None when no rollout is left.

    Raises:
        BadNumbersError: an advantage is not finite.
    """
    if not algorithm.counts_no_signal:
        groups = [group for group in groups if group.has_signal]
    groups = [group for group in groups if group.scored]
    rows = [rollout for group in groups for rollout in group.scored]
    if not rows:
        return None
    sizes = torch.tensor([len(group.scored) for group in groups])
    group_index = torch.arange(len(groups)).repeat_interleave(sizes)
    lengths = torch.tensor([len(row.completion.token_ids) for row in rows])
    mask = torch.arange(max(1, int(lengths.max()))) < lengths.unsqueeze(1)
    rewards = torch.tensor([r for group in groups for r in group.rewards], dtype=torch.float64)
    scores = Scores(rewards=rewards, group_index=group_index, mask=mask)
    return Batch(
        prompts=tuple(group.scored[0].prompt for group in groups),
        group_index=group_index.to(device),
        token_ids=_filled(mask, [r.completion.token_ids for r in rows], torch.int64).to(device),
        lengths=lengths.to(device),
        mask=mask.to(device),
        sampling_log_probs=_filled(mask, [r.completion.log_probs for r in rows], dtype).to(device),
        old_log_probs=None,
        advantages=_advantages(scores, algorithm, rows).to(device, dtype),
        weights=algorithm.aggregation(mask, group_index).to(device, dtype),
    )


def _advantages(scores: Scores, algorithm: Algorithm, rows: Sequence[Rollout]) -> Tensor:
    """``[B, T]`` float64, 0 off the mask; an advantage that is not finite is an error."""
    values = algorithm.advantages(scores)
    if values.dim() == 1:
        values = values.unsqueeze(1)
    values = torch.where(scores.mask, values, 0.0)
    finite = values.isfinite().all(dim=1)
    if not finite.all():
        row = int((~finite).nonzero()[0])
        raise BadNumbersError(
            f"the advantage of a completion of problem {rows[row].prompt.problem_id!r} is not "
            f"finite; its reward is {scores.rewards[row].item()}; check the rewards and "
            f"the advantage function of {algorithm.name!r}"
        )
    return values


def _filled(mask: Tensor, rows: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """``[B, T]`` with each row's values at its start and 0 behind them."""
    values = torch.tensor([value for row in rows for value in row], dtype=dtype)
    return torch.zeros(mask.shape, dtype=dtype).masked_scatter(mask, values)


def cut(batch: Batch, token_budget: int) -> Iterator[Batch]:
    """Cut a batch into passes of whole rows, leaving out rows that train nothing.

    A pass costs the tokens of its prompts, each once, plus those of its completions. Groups stay
    whole where they fit; a group that is larger than the budget is cut between rows, and its prompt
    then runs once in each of its passes. A row larger than the budget is a pass of its own.

    Args:
        batch: the batch of one update.
        token_budget: most tokens in a pass, at least 1.

    Yields:
        Batches whose gradients add up to that of the whole, because weights are fixed beforehand.
    """
    lengths = batch.lengths.tolist()
    trained = batch.row_trains().nonzero().flatten().tolist()
    by_group: dict[int, list[int]] = {}
    for row in trained:
        by_group.setdefault(int(batch.group_index[row]), []).append(row)
    current: list[int] = []
    used = 0
    for group, rows in by_group.items():
        prompt = len(batch.prompts[group].token_ids)
        if current and used + prompt + sum(lengths[row] for row in rows) > token_budget:
            yield select_rows(batch, current)
            current, used = [], 0
        used += prompt
        for index, row in enumerate(rows):
            if index and used + lengths[row] > token_budget:
                yield select_rows(batch, current)
                current, used = [], prompt
            current.append(row)
            used += lengths[row]
    if current:
        yield select_rows(batch, current)


def select_rows(batch: Batch, rows: Sequence[int]) -> Batch:
    """The batch of some rows, in the given order, with the prompts they need and no spare columns.

    Nothing is computed again: weights and advantages stay those of the whole batch.
    """
    index = torch.tensor(rows, device=batch.group_index.device)
    used, group_index = batch.group_index[index].unique(return_inverse=True)
    width = max(1, int(batch.lengths[index].max()))

    def pick(values: Tensor) -> Tensor:
        return values[index, :width]

    return Batch(
        prompts=tuple(batch.prompts[group] for group in used.tolist()),
        group_index=group_index,
        token_ids=pick(batch.token_ids),
        lengths=batch.lengths[index],
        mask=pick(batch.mask),
        sampling_log_probs=pick(batch.sampling_log_probs),
        old_log_probs=None if batch.old_log_probs is None else pick(batch.old_log_probs),
        advantages=pick(batch.advantages),
        weights=pick(batch.weights),
    )
