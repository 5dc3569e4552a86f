"""One update of the policy: score a batch in passes, add up the gradient, clip it, step."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch, LossOutput, Measured, Tokens, select_rows
from verigrad.core.corrections import off_policy_mask
from verigrad.core.kl import k3
from verigrad.policies.base import Policy, TokenScores
from verigrad.policies.shared_prompt import SharedPrompt
from verigrad.training.bad_updates import BadUpdate, likely_cause, whole_norm
from verigrad.training.memory import TokenBudget
from verigrad.training.passes import passes


@dataclass(frozen=True, kw_only=True)
class Update:
    """What one optimiser update did, or several of them together."""

    output: LossOutput
    """The loss and its diagnostics, over all passes."""

    gradient_norm: float
    """Of the whole gradient, before clipping; the mean over the updates."""

    passes: int
    """How many forward-backward passes the batch was cut into."""

    prompt_tokens: int
    """Tokens of prompts that were run; see :class:`Accumulated`."""

    updates: int = 1
    """How many updates these were."""

    def __add__(self, other: "Update") -> "Update":
        """Both together."""
        updates = self.updates + other.updates
        norms = self.gradient_norm * self.updates + other.gradient_norm * other.updates
        return Update(
            output=self.output + other.output,
            gradient_norm=norms / updates,
            passes=self.passes + other.passes,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            updates=updates,
        )


def loss_of(
    policy: Policy,
    batch: Batch,
    algorithm: Algorithm,
    temperature: float,
    entropy_coefficient: float = 0.0,
    shared: SharedPrompt | None = None,
) -> LossOutput:
    """The loss of some rows of an update's batch, with gradient.

    The sum of up to three terms, each ``(its weights * its values per token).sum()``: the policy
    loss, the divergence from the reference where it is in the loss, and the entropy bonus.

    Args:
        policy: scores the tokens.
        batch: whole rows, whose weights were fixed for the whole update.
        algorithm: gives the terms.
        temperature: that the completions were sampled at.
        entropy_coefficient: weight of the entropy bonus.
        shared: the rows' only prompt, where it has been run for several passes.
    """
    bonus = batch.entropy_weights is not None and entropy_coefficient > 0
    scores = policy.score(batch, temperature, entropy_gradient=bonus, shared=shared)
    new = scores.log_probs
    # Before the first update on a batch the old policy is this one: a ratio of 1, with a gradient.
    old = new.detach() if batch.old_log_probs is None else batch.old_log_probs
    per_token = algorithm.loss(new, old, batch.advantages, batch.mask)
    loss = (batch.weights * _corrected(per_token, new, batch, algorithm)).sum()
    divergence = algorithm.divergence
    if batch.kl_weights is not None and divergence is not None and divergence.estimator:
        reference = _required(batch.reference_log_probs)
        term = divergence.estimator(new, old, reference, batch.mask)
        loss = loss + divergence.beta * (batch.kl_weights * term).sum()
    if batch.entropy_weights is not None and bonus:
        loss = loss - entropy_coefficient * (batch.entropy_weights * scores.entropy).sum()
    return _output(loss, scores, old, batch, algorithm)


def _corrected(per_token: Tensor, new: Tensor, batch: Batch, algorithm: Algorithm) -> Tensor:
    """The policy loss times what corrects for another sampling policy."""
    if batch.correction is not None:
        per_token = per_token * batch.correction
    if algorithm.off_policy_delta is not None:
        kept = off_policy_mask(
            new,
            batch.sampling_log_probs,
            batch.advantages,
            batch.mask,
            delta=algorithm.off_policy_delta,
        )
        per_token = per_token * kept
    return per_token


def _output(
    loss: Tensor, scores: TokenScores, old: Tensor, batch: Batch, algorithm: Algorithm
) -> LossOutput:
    new, mask = scores.log_probs.detach(), batch.mask
    gap = torch.where(mask, (old - batch.sampling_log_probs).abs(), 0.0)
    kl = None
    if batch.reference_log_probs is not None:
        kl = float(k3(new, old, batch.reference_log_probs, mask).double().sum())
    return LossOutput(
        loss=loss,
        tokens=int(mask.sum()),
        clipped=_without_gradient(algorithm, new, old, batch),
        entropy=float(scores.entropy.detach().double().sum()),
        kl=kl,
        mismatch=float(gap.double().sum()),
        largest_mismatch=float(gap.max()),
    )


def _without_gradient(algorithm: Algorithm, new: Tensor, old: Tensor, batch: Batch) -> int:
    """How many tokens with an advantage have no gradient from the policy loss: it is clipped."""
    with torch.enable_grad():
        probe = new.detach().requires_grad_()
        per_token = algorithm.loss(probe, old, batch.advantages, batch.mask)
        (gradient,) = torch.autograd.grad(per_token.sum(), probe)
    return int((batch.mask & (batch.advantages != 0) & (gradient == 0)).sum())


def _required(log_probs: Tensor | None) -> Tensor:
    if log_probs is None:
        raise ValueError("a divergence term in the loss needs reference log-probs in the batch")
    return log_probs


def measure(
    policy: Policy,
    reference: Policy | None,
    tokens: Tokens,
    *,
    temperature: float,
    token_budget: int | TokenBudget,
) -> Measured:
    """Score a step's tokens before the first update on them, in passes, without gradient.

    Args:
        policy: the trainer's.
        reference: the reference policy, if there is one.
        tokens: the whole step's.
        temperature: that the completions were sampled at.
        token_budget: most tokens in one pass.
    """
    shape = tokens.mask.shape
    old, entropy, other = (torch.zeros_like(tokens.sampling_log_probs) for _ in range(3))
    policies = [policy] if reference is None else [policy, reference]
    with torch.no_grad():
        for part, shared, _ in passes(policies, tokens, range(shape[0]), token_budget):
            some = select_rows(tokens, part)
            width = some.mask.shape[1]
            scores = policy.score(some, temperature, shared=shared[0])
            old[part, :width] = scores.log_probs.to(old.dtype)
            entropy[part, :width] = scores.entropy.to(old.dtype)
            if reference is not None:
                log_probs = reference.score(some, temperature, shared=shared[1]).log_probs
                other[part, :width] = log_probs.to(old.dtype)
    return Measured(
        old_log_probs=old,
        entropy=entropy,
        reference_log_probs=None if reference is None else other,
    )


class Accumulated(NamedTuple):
    """What is known once all passes of an update are over."""

    output: LossOutput
    """The loss and its diagnostics, over all passes."""

    passes: int

    prompt_tokens: int
    """Tokens of prompts that were run: each in every pass it is in, but once where it was shared by
    several."""


def accumulate(
    policy: Policy,
    batch: Batch,
    algorithm: Algorithm,
    *,
    temperature: float,
    token_budget: int | TokenBudget,
    entropy_coefficient: float = 0.0,
) -> Accumulated | None:
    """Add the batch's gradient to the parameters', pass by pass; None when nothing trains.

    The gradient does not depend on the budget: weights are fixed, and passes only add up.
    """
    if entropy_coefficient == 0:
        # A bonus whose weight has been steered to 0 trains nothing.
        batch = replace(batch, entropy_weights=None)
    total: LossOutput | None = None
    count = prompt_tokens = 0
    for rows, (shared,), runs_prompts in passes([policy], batch, _that_train(batch), token_budget):
        part = select_rows(batch, rows)
        output = loss_of(policy, part, algorithm, temperature, entropy_coefficient, shared)
        output.loss.backward()
        # Without the graph behind it, so that a pass frees its memory.
        output = replace(output, loss=output.loss.detach())
        total = output if total is None else total + output
        count += 1
        if runs_prompts:
            prompt_tokens += sum(len(prompt.token_ids) for prompt in part.prompts)
    return None if total is None else Accumulated(total, count, prompt_tokens)


def _that_train(batch: Batch) -> list[int]:
    rows: list[int] = batch.row_trains().nonzero().flatten().tolist()
    return rows


def update(
    policy: Policy,
    batch: Batch,
    algorithm: Algorithm,
    optimizer: torch.optim.Optimizer,
    *,
    temperature: float,
    clip_norm: float,
    token_budget: int | TokenBudget,
    entropy_coefficient: float = 0.0,
) -> Update | BadUpdate | None:
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
        entropy_coefficient: weight of the entropy bonus.

    Returns:
        What was done, or what was wrong where the loss or the gradient is not finite (parameters
        and optimiser are as they were), or None when nothing trains.
    """
    optimizer.zero_grad(set_to_none=True)
    done = accumulate(
        policy,
        batch,
        algorithm,
        temperature=temperature,
        token_budget=token_budget,
        entropy_coefficient=entropy_coefficient,
    )
    if done is None:
        return None
    output = done.output
    norm = whole_norm(policy)
    if not (output.loss.isfinite() and norm.isfinite()):
        cause = likely_cause(policy, batch, output.loss)
        optimizer.zero_grad(set_to_none=True)
        return BadUpdate(loss=float(output.loss), gradient_norm=float(norm), cause=cause)
    torch.nn.utils.clip_grads_with_norm_(policy.module.parameters(), clip_norm, norm)
    optimizer.step()
    return Update(
        output=output,
        gradient_norm=float(norm),
        passes=done.passes,
        prompt_tokens=done.prompt_tokens,
    )
