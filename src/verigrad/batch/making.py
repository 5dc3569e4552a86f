"""From the groups of a step to its batch."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from verigrad.algorithms import Algorithm, Scores
from verigrad.batch.carriers import Batch, Measured, Tokens
from verigrad.batch.cutting import weighted
from verigrad.core.shaping import divergence_in_reward, top_entropy
from verigrad.errors import BadNumbersError
from verigrad.types import Finish, Group, Rollout, Status

Measure = Callable[[Tokens], Measured]
"""Scores tokens before the first update on them."""


def make_batch(
    groups: Sequence[Group],
    algorithm: Algorithm,
    *,
    measure: Measure | None = None,
    policy_version: int = 0,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Batch | None:
    """Lay out the scored rollouts of a step and give each token its advantage and weight.

    A failed rollout, or one that is too old, is left out before anything is computed, so every mean
    and denominator is that of a step in which it was never drawn. A group of which too little is
    left for the algorithm's advantages counts as one without signal.

    Args:
        groups: the groups of one step.
        algorithm: gives advantages and weights.
        measure: scores the tokens; called once, if the algorithm needs it.
        policy_version: the trainer's, for the age of rollouts.
        device: where the tensors live.
        dtype: of the float tensors; advantages and weights are computed in float64 first.

    Returns:
        The batch of the whole step, or None when no rollout is left.

    Raises:
        BadNumbersError: an advantage is not finite.
        ValueError: the algorithm needs ``measure`` and there is none.
    """
    kept = [rows for group in groups if (rows := _kept(group, algorithm, policy_version))]
    if not kept:
        return None
    rollouts = [rollout for rows in kept for rollout in rows]
    tokens = lay_out(kept, algorithm, device=device, dtype=dtype)
    measured = None
    if algorithm.needs_measuring:
        if measure is None:
            raise ValueError(f"{algorithm.name} needs the tokens scored before its first update")
        measured = measure(tokens)
    advantages = _advantages(tokens, rollouts, algorithm, measured).to(device, dtype)
    return weighted(
        Batch(
            **{field.name: getattr(tokens, field.name) for field in fields(Tokens)},
            old_log_probs=measured.old_log_probs if measured and algorithm.needs_old else None,
            advantages=advantages,
            weights=torch.zeros_like(advantages),
            correction=_correction(tokens, algorithm, measured),
            reference_log_probs=measured.reference_log_probs if measured else None,
        ),
        algorithm,
        _least_sure(tokens, algorithm, measured),
    )


def _kept(group: Group, algorithm: Algorithm, policy_version: int) -> tuple[Rollout, ...]:
    """The rollouts of a group that take part in the step."""
    rows = group.scored
    if algorithm.max_staleness is not None:
        oldest = policy_version - algorithm.max_staleness
        rows = tuple(row for row in rows if row.completion.policy_version >= oldest)
    left = replace(group, rollouts=rows)
    has_signal = left.has_signal and len(rows) >= algorithm.smallest_group
    return rows if has_signal or algorithm.counts_no_signal else ()


def lay_out(
    groups: Sequence[Sequence[Rollout]],
    algorithm: Algorithm,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Tokens:
    """Put rollouts into tensors, rows of a prompt together.

    Args:
        groups: at least one group, each of at least one rollout of one prompt.
        algorithm: says whether completions that reached the length limit train.
        device: where the tensors live.
        dtype: of the log-probs.
    """
    rows = [rollout for group in groups for rollout in group]
    sizes = torch.tensor([len(group) for group in groups])
    lengths = torch.tensor([len(row.completion.token_ids) for row in rows])
    present = torch.arange(max(1, int(lengths.max()))) < lengths.unsqueeze(1)
    trains = torch.tensor(
        [
            not (algorithm.mask_truncated and row.completion.finish is Finish.TRUNCATED)
            for row in rows
        ]
    )
    log_probs = [row.completion.log_probs for row in rows]
    return Tokens(
        prompts=tuple(group[0].prompt for group in groups),
        group_index=torch.arange(len(groups)).repeat_interleave(sizes).to(device),
        token_ids=_filled(present, [r.completion.token_ids for r in rows], torch.int64).to(device),
        lengths=lengths.to(device),
        mask=(present & trains.unsqueeze(1)).to(device),
        sampling_log_probs=_filled(present, log_probs, dtype).to(device),
    )


def _filled(present: Tensor, rows: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    """``[B, T]`` with each row's values at its start and 0 behind them."""
    values = torch.tensor([value for row in rows for value in row], dtype=dtype)
    return torch.zeros(present.shape, dtype=dtype).masked_scatter(present, values)


def _advantages(
    tokens: Tokens, rollouts: Sequence[Rollout], algorithm: Algorithm, measured: Measured | None
) -> Tensor:
    """``[B, T]`` float64 on the CPU, 0 off the mask and where a group is too small for them.

    Raises:
        BadNumbersError: what they are made from, or one of them, is not finite.
    """
    scores = scores_of(tokens, rollouts, algorithm, measured)
    _refuse_not_finite(scores.rewards, rollouts, "the reward")
    if scores.components is not None:
        _refuse_not_finite(scores.components, rollouts, "a part of the reward")
    if scores.kl is not None and algorithm.divergence_in_reward:
        divergence = torch.where(scores.mask, scores.kl, 0.0)
        _refuse_not_finite(divergence, rollouts, "the divergence in the reward")
    sizes = scores.group_index.bincount()
    large = (sizes >= algorithm.smallest_group)[scores.group_index]
    values = torch.zeros(scores.mask.shape, dtype=torch.float64)
    if large.any():
        values[large] = _found(algorithm, _rows_of(scores, large))
    values = torch.where(scores.mask, values, 0.0)
    _refuse_not_finite(values, rollouts, f"the advantage by {algorithm.name!r}")
    return values


def _found(algorithm: Algorithm, scores: Scores) -> Tensor:
    """What the algorithm's own function gives, ``[B, 1]`` or ``[B, T]`` float64."""
    try:
        values = algorithm.advantages(scores).double()
    except ValueError as error:
        raise BadNumbersError(f"{algorithm.name}: {error}") from error
    return values if values.dim() == 2 else values.unsqueeze(1)


def _rows_of(scores: Scores, chosen: Tensor) -> Scores:
    """The rows that are chosen, ``[B]`` bool."""
    return replace(
        scores,
        rewards=scores.rewards[chosen],
        group_index=scores.group_index[chosen],
        mask=scores.mask[chosen],
        components=None if scores.components is None else scores.components[chosen],
        component_weights=(
            None if scores.component_weights is None else scores.component_weights[chosen]
        ),
        kl=None if scores.kl is None else scores.kl[chosen],
    )


def _refuse_not_finite(values: Tensor, rollouts: Sequence[Rollout], what: str) -> None:
    """Raise a BadNumbersError that names the first row of ``[B]`` or ``[B, N]`` with inf or nan."""
    finite = values.reshape(len(rollouts), -1).isfinite().all(dim=1)
    if not finite.all():
        row = rollouts[int((~finite).nonzero()[0])]
        raise BadNumbersError(
            f"{what} of completion {row.completion.text[:60]!r} of problem "
            f"{row.prompt.problem_id!r} is not finite; its verdict has reward "
            f"{row.verdict.reward}; check the verifier, the reference policy and the advantage "
            "function"
        )


def scores_of(
    tokens: Tokens, rollouts: Sequence[Rollout], algorithm: Algorithm, measured: Measured | None
) -> Scores:
    """What the advantage function sees: rewards shaped by length and divergence, on the CPU."""
    rewards = torch.tensor([row.verdict.reward for row in rollouts], dtype=torch.float64)
    mask = tokens.mask.cpu()
    if algorithm.punish_length is not None:
        rewards = rewards + algorithm.punish_length(tokens.lengths.cpu())
    kl = None
    if measured is not None and measured.reference_log_probs is not None:
        kl = (measured.old_log_probs - measured.reference_log_probs).double().cpu()
        term = algorithm.divergence
        if term is not None and term.estimator is None and not term.per_token:
            rewards = divergence_in_reward(rewards, kl, mask, beta=term.beta)
    components, weights = _components(rollouts) if algorithm.by_part else (None, None)
    return Scores(
        rewards=rewards,
        group_index=tokens.group_index.cpu(),
        mask=mask,
        components=components,
        component_weights=weights,
        kl=kl,
    )


def _components(rollouts: Sequence[Rollout]) -> tuple[Tensor | None, Tensor | None]:
    """The named parts of the rewards and their weights, ``[B, Q]`` each, in order of name.

    Raises:
        BadNumbersError: verdicts of one step have different parts.
    """
    names = sorted({name for row in rollouts for name in row.verdict.components})
    if not names:
        return None, None
    for row in rollouts:
        unparsable = row.verdict.status is Status.UNPARSABLE
        if sorted(row.verdict.components) != names and not unparsable:
            raise BadNumbersError(
                f"the verdict on a completion of problem {row.prompt.problem_id!r} has the parts "
                f"{sorted(row.verdict.components)}, others of the step have {names}; each verdict "
                "of a step needs the same parts where advantages look at them (an algorithm of "
                "your own that does not has by_part=False)"
            )
    # Where there was no answer to look at every part is 0, as the reward is.
    parts = [[row.verdict.components.get(name, 0.0) for name in names] for row in rollouts]
    # Its weights are those of the others of its problem; all their parts may be 0 too.
    given = {row.prompt: row.verdict.weights for row in rollouts if row.verdict.components}
    own = [
        row.verdict.weights if row.verdict.components else given.get(row.prompt, {})
        for row in rollouts
    ]
    weights = [[of_row.get(name, 1.0) for name in names] for of_row in own]
    return (
        torch.tensor(parts, dtype=torch.float64),
        torch.tensor(weights, dtype=torch.float64),
    )


def _correction(tokens: Tokens, algorithm: Algorithm, measured: Measured | None) -> Tensor | None:
    if algorithm.correction is None or measured is None:
        return None
    return algorithm.correction(measured.old_log_probs, tokens.sampling_log_probs, tokens.mask)


def _least_sure(tokens: Tokens, algorithm: Algorithm, measured: Measured | None) -> Tensor | None:
    if algorithm.top_entropy is None or measured is None:
        return None
    return top_entropy(measured.entropy, tokens.mask, fraction=algorithm.top_entropy)
