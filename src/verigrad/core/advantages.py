"""Rewards of groups -> advantages.

Shapes: ``rewards`` is ``[B]`` in float64, ``group_index`` is ``[B]`` and says which group each row
belongs to. Groups may have different sizes, and their rows may stand in any order.

All estimators here subtract the mean of the group. A group whose rewards are all equal, or that
has one row only, gets exactly 0: a mean of equal floats is not always that float, and dividing
such dust by a small deviation would turn it into an advantage of order one.
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


class _Groups:
    """The statistics of each row's group, each ``[B]``: two passes, in float64."""

    def __init__(self, rewards: Tensor, group_index: Tensor) -> None:
        if rewards.dtype != torch.float64:
            raise ValueError(f"rewards are {rewards.dtype}; advantages are computed from float64")
        if not rewards.isfinite().all():
            row = int((~rewards.isfinite()).nonzero()[0])
            raise ValueError(f"non_finite_reward: row {row} has reward {rewards[row].item()}")
        self.rewards = rewards
        self.group_index = group_index
        self.count = int(group_index.max()) + 1 if len(group_index) else 0
        self.size = self._sum(torch.ones_like(rewards))

    def _sum(self, values: Tensor) -> Tensor:
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

    def centred(self) -> Tensor:
        """Reward minus group mean; exactly 0 where the group has no signal."""
        centred = self.rewards - self._sum(self.rewards) / self.size
        return torch.where(self.has_signal(), centred, 0.0)

    def deviation(self, ddof: int) -> Tensor:
        """Standard deviation over K - ddof; 0 where the group has no signal."""
        squares = self._sum(self.centred().square())
        return (squares / (self.size - ddof).clamp(min=1)).sqrt()
