"""One step: collect rollouts, then update the policy from them.

Step 3 to 8 of a completion's walk: sample, verify, group, lay out, score in passes, clip, step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch, LossOutput, cut
from verigrad.errors import BadNumbersError
from verigrad.policies.base import Policy
from verigrad.types import Completion, Group, Problem, Prompt, Rollout
from verigrad.verifiers import Verifier, verify


@dataclass(frozen=True, kw_only=True)
class Update:
    """What one optimiser update did."""

    output: LossOutput
    """The loss and its diagnostics, over all passes."""

    gradient_norm: float
    """Of the whole gradient, before clipping."""

    passes: int
    """How many forward-backward passes the batch was cut into."""

    prompt_tokens: int
    """Prompt tokens that were run, each prompt once per pass it is in."""


def judge(
    verifier: Verifier,
    problems: Sequence[Problem],
    prompts: Sequence[Prompt],
    completions: Sequence[tuple[Completion, ...]],
) -> list[Group]:
    """Verify every completion and put those of one problem into a group.

    Args:
        verifier: the task's.
        problems: one per slot of the step.
        prompts: of the same problems.
        completions: of the same problems, K each.
    """
    return [
        Group(
            problem=problem,
            rollouts=tuple(
                Rollout(
                    prompt=prompt,
                    completion=completion,
                    verdict=verify(verifier, completion.text, problem.reference),
                )
                for completion in some
            ),
        )
        for problem, prompt, some in zip(problems, prompts, completions, strict=True)
    ]


def loss_of(policy: Policy, batch: Batch, algorithm: Algorithm, temperature: float) -> LossOutput:
    """The loss of some rows of a step's batch, with gradient: ``(weights * per_token).sum()``.

    Args:
        policy: scores the tokens.
        batch: whole rows, whose weights were fixed for the whole update.
        algorithm: gives the loss per token.
        temperature: that the completions were sampled at.
    """
    scores = policy.score(batch, temperature)
    new = scores.log_probs
    # Before the first update on a batch the old policy is this one: a ratio of 1, with a gradient.
    old = new.detach() if batch.old_log_probs is None else batch.old_log_probs
    per_token = algorithm.loss(new, old, batch.advantages, batch.mask)
    with torch.no_grad():
        clipped = _count_clipped(algorithm, new, old, batch)
        gap = torch.where(batch.mask, (new - batch.sampling_log_probs).abs(), 0.0)
    return LossOutput(
        loss=(batch.weights * per_token).sum(),
        tokens=int(batch.mask.sum()),
        clipped=clipped,
        entropy=float(scores.entropy.double().sum()),
        mismatch=float(gap.double().sum()),
        largest_mismatch=float(gap.max()),
    )


def _count_clipped(algorithm: Algorithm, new: Tensor, old: Tensor, batch: Batch) -> int:
    if algorithm.clipped is None:
        return 0
    return int(algorithm.clipped(new, old, batch.advantages, batch.mask).sum())


def accumulate(
    policy: Policy, batch: Batch, algorithm: Algorithm, *, temperature: float, token_budget: int
) -> tuple[LossOutput, list[Batch]] | None:
    """Add the batch's gradient to the parameters', pass by pass; None when nothing trains.

    The gradient does not depend on the budget: weights are fixed, and passes only add up.
    """
    passes = list(cut(batch, token_budget))
    total: LossOutput | None = None
    for part in passes:
        output = loss_of(policy, part, algorithm, temperature)
        output.loss.backward()
        output = detached(output)
        total = output if total is None else total + output
    return None if total is None else (total, passes)


def detached(output: LossOutput) -> LossOutput:
    """The same numbers without the graph behind them, so that a pass frees its memory."""
    return LossOutput(
        loss=output.loss.detach(),
        tokens=output.tokens,
        clipped=output.clipped,
        entropy=output.entropy,
        mismatch=output.mismatch,
        largest_mismatch=output.largest_mismatch,
    )


def update(
    policy: Policy,
    batch: Batch,
    algorithm: Algorithm,
    optimizer: torch.optim.Optimizer,
    *,
    temperature: float,
    clip_norm: float,
    token_budget: int,
) -> Update | None:
    """Update the policy once from a batch.

    When no row has a non-zero weight times advantage there is no optimiser step at all: a zero
    gradient would still move the weights through Adam's momentum.

    Args:
        policy: what is trained.
        batch: the step's rollouts.
        algorithm: the objective.
        optimizer: over the policy's parameters.
        temperature: that the completions were sampled at.
        clip_norm: largest gradient norm, may be inf.
        token_budget: most tokens in one pass.

    Returns:
        What was done, or None when nothing trains.

    Raises:
        BadNumbersError: the loss or the gradient is not finite; the parameters are untouched.
    """
    optimizer.zero_grad(set_to_none=True)
    done = accumulate(policy, batch, algorithm, temperature=temperature, token_budget=token_budget)
    if done is None:
        return None
    output, passes = done
    norm = float(torch.nn.utils.clip_grad_norm_(policy.module.parameters(), clip_norm))
    if not (torch.isfinite(output.loss) and norm < float("inf")):
        raise BadNumbersError(
            f"the loss is {float(output.loss)} and the gradient norm {norm}; both must be finite, "
            "so the update was not made; a smaller optimizer.learning_rate is the usual cure"
        )
    optimizer.step()
    return Update(
        output=output,
        gradient_norm=norm,
        passes=len(passes),
        prompt_tokens=sum(len(p.token_ids) for part in passes for p in part.prompts),
    )
