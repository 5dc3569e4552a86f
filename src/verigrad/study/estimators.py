"""Bias and variance of an estimator's gradient, exactly: all outcomes of a group are enumerated.

The policy has one logit and succeeds with probability p. A group of K has c successes with the
binomial probability, and the estimate ``(1/K) sum A_i d log pi / d logit`` depends on c only. Its
mean is ``w(p) * dp/dlogit``; an unbiased estimator has w = 1 everywhere, and an estimator that is
unbiased up to a constant ascends the success rate itself. Anything else ascends another objective.
"""

import math
from dataclasses import dataclass

import torch

from verigrad.algorithms import Algorithm, Scores


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What an estimator's gradient is at one success rate."""

    success_rate: float
    """p, in (0, 1)."""

    weight: float
    """w(p): the mean of the estimate over the exact gradient of p."""

    relative_deviation: float
    """Standard deviation of the estimate over the size of its mean; inf where the mean is 0."""

    no_signal: float
    """Chance that the estimate is exactly 0."""


def exact_estimate(algorithm: Algorithm, completions: int, success_rate: float) -> Estimate:
    """Enumerate the outcomes of a group of K at a success rate.

    Args:
        algorithm: its advantages, and its loss at old = new.
        completions: K.
        success_rate: p, in (0, 1).
    """
    p, total = success_rate, completions
    outcomes = [
        (
            math.comb(total, right) * p**right * (1 - p) ** (total - right),
            _estimate(algorithm, total, right, p),
        )
        for right in range(total + 1)
    ]
    mean = sum(chance * value for chance, value in outcomes)
    square = sum(chance * value * value for chance, value in outcomes)
    deviation = math.sqrt(max(0.0, square - mean * mean))
    return Estimate(
        success_rate=p,
        weight=mean / (p * (1 - p)),
        relative_deviation=deviation / abs(mean) if mean else math.inf,
        no_signal=sum(chance for chance, value in outcomes if value == 0),
    )


def _estimate(algorithm: Algorithm, total: int, right: int, p: float) -> float:
    """The ascent direction along the logit, for a group with some successes."""
    rewards = torch.tensor([1.0] * right + [0.0] * (total - right), dtype=torch.float64)
    mask = torch.ones(total, 1, dtype=torch.bool)
    group = torch.zeros(total, dtype=torch.int64)
    scores = Scores(rewards=rewards, group_index=group, mask=mask)
    advantages = algorithm.advantages(scores).view(-1, 1)
    log_probs = (math.log(1 - p) + (math.log(p) - math.log(1 - p)) * rewards).view(-1, 1)
    log_probs.requires_grad_()
    per_token = algorithm.loss(log_probs, log_probs.detach(), advantages, mask)
    weights = algorithm.aggregation(mask, group)
    (gradient,) = torch.autograd.grad((weights * per_token).sum(), log_probs)
    # d log pi / d logit is 1 - p for a success and -p for a failure.
    return float(-(gradient.view(-1) * (rewards - p)).sum())
