"""Advantages for the best of k: rewards of 0 and 1, and what a group's N completions say of pass@k.

``rewards`` is ``[B]`` float64, ``group_index`` is ``[B]``; c is the number of successes of a group.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from verigrad.core.advantages import EQUAL_WITHIN, check_rewards


def passk_analytic(rewards: Tensor, group_index: Tensor, *, k: int, eps: float = 1e-6) -> Tensor:
    """Advantage of a completion in the best of k, centred and scaled: 2508.10751.

    With c successes of N:  rho = 1 - C(N-c, k) / C(N, k),  s = sqrt(rho (1 - rho)),
    success (1 - rho) / (s + eps), failure (1 - rho - C(N-c-1, k-1) / C(N-1, k-1)) / (s + eps).
    Exactly 0 where s = 0.

    Args:
        rewards: ``[B]`` float64, each 0 or 1.
        group_index: ``[B]`` int64.
        k: at least 1, at most the size of the smallest group.
        eps: added to the deviation.

    Raises:
        ValueError: a reward is neither 0 nor 1, or k is larger than a group.
    """

    def advantage(size: int, right: int) -> tuple[float, float]:
        rho = 1 - _share(size - right, size, k)
        scale = math.sqrt(rho * (1 - rho))
        if scale == 0:
            return 0.0, 0.0
        wrong = 1 - rho - _share(size - right - 1, size - 1, k - 1)
        return (1 - rho) / (scale + eps), wrong / (scale + eps)

    return _by_successes(rewards, group_index, k, advantage)


def pkpo(rewards: Tensor, group_index: Tensor, *, k: int) -> Tensor:
    """Each completion's part in pass@k, unbiased for its gradient: PKPO 2505.15201.

    Success k, failure k (1 - C(N-1-c, k-1) / C(N-1, k-1)): the paper's rewards times N, because
    the loss averages over the group. Not centred: a group of equal rewards may have a signal.
    Arguments and errors are those of :func:`passk_analytic`.
    """
    return _by_successes(
        rewards,
        group_index,
        k,
        lambda size, right: (float(k), k * (1 - _share(size - 1 - right, size - 1, k - 1))),
    )


def passk_loo(rewards: Tensor, group_index: Tensor, *, k: int) -> Tensor:
    """Credit for a success where the others would have failed: the expectation of :func:`pkpo`.

    Success k C(N-c, k-1) / C(N-1, k-1), failure 0; of lower variance than :func:`pkpo`.
    Arguments and errors are those of :func:`passk_analytic`.
    """
    return _by_successes(
        rewards,
        group_index,
        k,
        lambda size, right: (k * _share(size - right, size - 1, k - 1), 0.0),
    )


def best_minus_second(rewards: Tensor, group_index: Tensor) -> Tensor:
    """The best completion gets its lead over the second, the others 0: 2503.19595.

    In expectation the gradient of pass@K over K, for rewards of 0 and 1. A tie, also one but for
    float dust, and a group of one give exactly 0.
    """
    check_rewards(rewards)
    result = torch.zeros_like(rewards)
    for group in group_index.unique():
        rows = (group_index == group).nonzero().flatten()
        if len(rows) > 1:
            top = rewards[rows].topk(2)
            best, second = top.values
            if best - second > EQUAL_WITHIN * best.abs().clamp(min=1):
                result[rows[top.indices[0]]] = best - second
    return result


def _by_successes(
    rewards: Tensor,
    group_index: Tensor,
    k: int,
    advantage: Callable[[int, int], tuple[float, float]],
) -> Tensor:
    """Give each success and each failure of a group an advantage that depends on N and c only."""
    check_rewards(rewards)
    if not ((rewards == 0) | (rewards == 1)).all():
        raise ValueError("binary_reward_required: pass@k advantages need rewards of 0 and 1")
    result = torch.zeros_like(rewards)
    for group in group_index.unique():
        rows = group_index == group
        size, right = int(rows.sum()), int(rewards[rows].sum())
        if k > size:
            raise ValueError(f"k_larger_than_group: k is {k}, but a group has {size} completions")
        success, failure = advantage(size, right)
        result[rows] = failure + (success - failure) * rewards[rows]
    return result


def _share(right: int, total: int, k: int) -> float:
    """``C(right, k) / C(total, k)``: chance that k of ``total`` are all among ``right``."""
    return math.comb(max(right, 0), k) / math.comb(total, k)
