"""Rewards of groups -> advantages.

Shapes: ``rewards`` is ``[B]`` in float64, ``group_index`` is ``[B]`` and says which group each row
belongs to. Groups may have different sizes, and their rows may stand in any order.

Where the mean of the group is subtracted, a group whose rewards are all equal, or that has one row
only, gets exactly 0 there: a mean of equal floats is not always that float, and dividing such dust
by a small deviation would turn it into an advantage of order one.
"""

import torch
from torch import Tensor

EQUAL_WITHIN = 1e-9
"""Rewards that spread less than this, relative to max(1, largest magnitude), count as equal."""


def grpo(rewards: Tensor, group_index: Tensor, *, eps: float = 1e-6, ddof: int = 1) -> Tensor:
    """Reward minus group mean, over the group's deviation: DeepSeekMath 2402.03300, section 4.1.2.

        A_i = (r_i - mean(r)) / (std(r) + eps)      std over K - ddof

    Degenerate group (K = 1, or all rewards equal): exactly 0.

    Args:
        rewards: ``[B]`` float64, finite.
        group_index: ``[B]`` int64.
        eps: added to the deviation, at least 0; 1e-4 and 1e-8 are also in use.
        ddof: 1 for the sample deviation, 0 for the population's.

    Returns:
        Advantages ``[B]`` float64, each group summing to 0.

    Raises:
        ValueError: a reward is not finite, or is not float64.
    """
    group = _Groups(rewards, group_index)
    return torch.where(group.has_signal(), group.centred() / (group.deviation(ddof) + eps), 0.0)


def dr_grpo(rewards: Tensor, group_index: Tensor) -> Tensor:
    """Reward minus group mean, not divided: Dr. GRPO 2503.20783.

        A_i = r_i - mean(r)

    Its expectation is (K - 1) / K of the policy gradient. Degenerate group: exactly 0.
    Arguments, result and errors are those of :func:`grpo`.
    """
    return _Groups(rewards, group_index).centred()


def rloo(rewards: Tensor, group_index: Tensor) -> Tensor:
    """Reward minus the mean of the others: REINFORCE leave-one-out 2402.14740.

        A_i = r_i - mean(r_j, j != i) = K / (K - 1) * (r_i - mean(r))

    Unbiased for the policy gradient. Degenerate group: exactly 0.
    Arguments, result and errors are those of :func:`grpo`.
    """
    group = _Groups(rewards, group_index)
    return group.centred() * group.size / (group.size - 1).clamp(min=1)


def batch_std(rewards: Tensor, group_index: Tensor, *, eps: float = 1e-6, ddof: int = 1) -> Tensor:
    """Reward minus group mean, over the deviation of the whole step: Lite PPO 2508.08221.

        A_i = (r_i - mean(r of the group)) / (std(all rewards) + eps)

    The deviation is that of the raw rewards, so the spread between problems enters it. Degenerate
    group: exactly 0. Arguments, result and errors are those of :func:`grpo`.
    """
    group = _Groups(rewards, group_index)
    deviation = (rewards - rewards.mean()).square().sum() / max(1, len(rewards) - ddof)
    # A step of equal rewards has no deviation, and with an eps of 0 nothing to divide by.
    return torch.where(group.has_signal(), group.centred() / (deviation.sqrt() + eps), 0.0)


def maxrl(rewards: Tensor, group_index: Tensor) -> Tensor:
    """Reward minus group mean, over the group mean: MaxRL 2602.02710, algorithm 1.

        A_i = (r_i - mean(r)) / mean(r), 0 where the mean is 0

    Its expectation is the gradient of log p truncated at order K - 1. Degenerate group: exactly 0.
    Arguments and result are those of :func:`grpo`.

    Raises:
        ValueError: a reward is negative, not finite, or not float64.
    """
    group = _Groups(rewards, group_index)
    if (rewards < 0).any():
        row = int((rewards < 0).nonzero()[0])
        raise ValueError(
            f"maxrl_negative_reward: row {row} has reward {rewards[row].item()}; a group's mean "
            "divides, so rewards must be at least 0"
        )
    mean = group.mean()
    return torch.where(mean > 0, group.centred() / torch.where(mean > 0, mean, 1.0), 0.0)


def opo(rewards: Tensor, group_index: Tensor, mask: Tensor) -> Tensor:
    """Reward minus the length-weighted mean of the group: OPO 2505.23585.

        A_i = r_i - sum(n_j r_j) / sum(n_j);  the plain mean where every completion is empty

    Degenerate group: exactly 0.
    """
    group = _Groups(rewards, group_index)
    lengths = mask.sum(dim=1).double()
    tokens = group.sum(lengths)
    weighted = group.sum(lengths * rewards) / tokens.clamp(min=1)
    baseline = torch.where(tokens > 0, weighted, group.mean())
    return torch.where(group.has_signal(), rewards - baseline, 0.0)


def reinforce_pp(
    rewards: Tensor, mask: Tensor, kl: Tensor | None = None, *, beta: float = 0.0
) -> Tensor:
    """Reward less the divergence still to come, whitened over the step: REINFORCE++ 2501.03262.

        A_it = r_i - beta * sum(kl_is, s >= t), then (A - mean) / sqrt(max(var, 1e-8))

    Mean and (population) variance are over the trained tokens of the whole step. There is no group
    mean: one completion per problem is enough, and a group of equal rewards has a signal. When all
    of the step's values are equal the result is exactly 0.

    Args:
        rewards: ``[B]`` float64, finite.
        mask: ``[B, T]`` bool.
        kl: ``[B, T]``, old log-probs less reference log-probs; may be anything off the mask.
        beta: weight of the divergence.

    Returns:
        ``[B, T]`` float64, 0 off the mask.

    Raises:
        ValueError: a reward is not finite, or is not float64.
    """
    check_rewards(rewards)
    values = rewards.unsqueeze(1).expand(mask.shape)
    if beta and kl is not None:
        seen = torch.where(mask, kl.double(), 0.0)
        values = values - beta * seen.flip(1).cumsum(1).flip(1)
    return _whitened(values, mask)


def reinforce_pp_baseline(rewards: Tensor, group_index: Tensor, mask: Tensor) -> Tensor:
    """Reward minus group mean, whitened over the step's tokens: REINFORCE++-baseline.

    Long completions weigh more in the mean and the variance. Otherwise as :func:`reinforce_pp`.
    """
    return _whitened(_Groups(rewards, group_index).centred().unsqueeze(1).expand(mask.shape), mask)


def gdpo(components: Tensor, group_index: Tensor, weights: Tensor, *, eps: float = 1e-4) -> Tensor:
    """Each reward normalised within the group, then summed, then over the step: GDPO 2601.05242.

        a_q = grpo(component q);  S_i = sum(w_q a_iq);  A_i = (S_i - mean(S)) / (std(S) + eps)

    A component that is constant in a group contributes 0 there; a group in which all are constant
    gets exactly 0.

    Args:
        components: ``[B, Q]`` float64, the named parts of the reward before weighting.
        group_index: ``[B]`` int64.
        weights: ``[Q]`` float64, or ``[B, Q]`` where each reward has its own.
        eps: added to both deviations.
    """
    parts = [grpo(part, group_index, eps=eps) for part in components.unbind(1)]
    total = (torch.stack(parts, dim=1) * weights).sum(dim=1)
    # Each part sums to 0 over a group, so the mean of the totals is 0 but for float dust, which
    # must not reach a group without signal.
    return torch.where(total == 0, 0.0, grpo(total, torch.zeros_like(group_index), eps=eps))


def sum_then_grpo(
    components: Tensor, group_index: Tensor, weights: Tensor, *, eps: float = 1e-6, ddof: int = 1
) -> Tensor:
    """The weighted sum of the rewards, then :func:`grpo`. Arguments as for :func:`gdpo`."""
    for part in components.unbind(1):
        check_rewards(part)
    return grpo((components * weights).sum(dim=1), group_index, eps=eps, ddof=ddof)


def check_rewards(rewards: Tensor) -> None:
    """Refuse rewards that are not finite float64.

    Raises:
        ValueError: says which row.
    """
    if rewards.dtype != torch.float64:
        raise ValueError(f"rewards are {rewards.dtype}; advantages are computed from float64")
    if not rewards.isfinite().all():
        row = int((~rewards.isfinite()).nonzero()[0])
        raise ValueError(f"non_finite_reward: row {row} has reward {rewards[row].item()}")


def _whitened(values: Tensor, mask: Tensor) -> Tensor:
    """``(values - mean) / deviation`` over the mask; exactly 0 where all values are equal."""
    seen = values[mask]
    if len(seen) == 0 or seen.max() - seen.min() <= EQUAL_WITHIN * seen.abs().max().clamp(min=1):
        return torch.zeros(mask.shape, dtype=values.dtype, device=values.device)
    centred = values - seen.mean()
    variance = (seen - seen.mean()).square().mean().clamp(min=1e-8)
    return torch.where(mask, centred / variance.sqrt(), 0.0)


class _Groups:
    """The statistics of each row's group, each ``[B]``: two passes, in float64."""

    def __init__(self, rewards: Tensor, group_index: Tensor) -> None:
        check_rewards(rewards)
        self.rewards = rewards
        self.group_index = group_index
        self.count = int(group_index.max()) + 1 if len(group_index) else 0
        self.size = self.sum(torch.ones_like(rewards))

    def sum(self, values: Tensor) -> Tensor:
        """Sum of a value ``[B]`` over the row's group."""
        totals = values.new_zeros(self.count).index_add_(0, self.group_index, values)
        return totals[self.group_index]

    def _extreme(self, values: Tensor, reduce: str) -> Tensor:
        result = values.new_zeros(self.count)
        result.scatter_reduce_(0, self.group_index, values, reduce, include_self=False)
        return result[self.group_index]

    def has_signal(self) -> Tensor:
        """``[B]`` bool: the rewards of the row's group differ."""
        spread = self._extreme(self.rewards, "amax") - self._extreme(self.rewards, "amin")
        scale = self._extreme(self.rewards.abs(), "amax").clamp(min=1)
        return spread > EQUAL_WITHIN * scale

    def mean(self) -> Tensor:
        """Mean reward of the group."""
        return self.sum(self.rewards) / self.size

    def centred(self) -> Tensor:
        """Reward minus group mean; exactly 0 where the group has no signal."""
        centred = self.rewards - self.mean()
        return torch.where(self.has_signal(), centred, 0.0)

    def deviation(self, ddof: int) -> Tensor:
        """Standard deviation over K - ddof; 0 where the group has no signal."""
        squares = self.sum(self.centred().square())
        return (squares / (self.size - ddof).clamp(min=1)).sqrt()
