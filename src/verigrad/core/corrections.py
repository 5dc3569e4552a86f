"""Weights for completions that another policy sampled: a second program, or an older version.

``old_log_probs`` are the trainer's before its first update on the batch, ``sampling_log_probs`` the
engine's while sampling; both ``[B, T]``, without gradient, and so are the weights that are returned
(0 off the mask). They multiply the policy loss, never the divergence term, and they change no
denominator: otherwise rejecting some tokens would inflate the others.

``token`` weights compare token by token; ``sequence`` weights use the product of a row's ratios;
``geometric`` ones its geometric mean. The field calls both of the latter "sequence level".
"""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Summed log-ratios are clamped to this size."""


def token_truncated(
    old_log_probs: Tensor, sampling_log_probs: Tensor, mask: Tensor, *, cap: float = 2.0
) -> Tensor:
    """``min(ratio, cap)`` per token: truncated importance sampling."""
    return _seen(_token_ratio(old_log_probs, sampling_log_probs, mask).clamp(max=cap), mask)


def token_masked(
    old_log_probs: Tensor,
    sampling_log_probs: Tensor,
    mask: Tensor,
    *,
    low: float = 0.5,
    high: float = 2.0,
) -> Tensor:
    """The ratio where it lies in [low, high], else 0: IcePop (2510.18855)."""
    ratio = _token_ratio(old_log_probs, sampling_log_probs, mask)
    return torch.where(mask & (ratio >= low) & (ratio <= high), ratio, 0.0)


def sequence_truncated(
    old_log_probs: Tensor, sampling_log_probs: Tensor, mask: Tensor, *, cap: float = 2.0
) -> Tensor:
    """``min(product of the row's ratios, cap)`` on every token: unbiased but for the cap."""
    ratio = _row_sum(old_log_probs, sampling_log_probs, mask).exp().clamp(max=cap)
    return _seen(ratio.expand(mask.shape), mask)


def sequence_masked(
    old_log_probs: Tensor,
    sampling_log_probs: Tensor,
    mask: Tensor,
    *,
    low: float = 0.5,
    high: float = 2.0,
) -> Tensor:
    """The product of the row's ratios where it lies in [low, high]; other rows get 0."""
    ratio = _row_sum(old_log_probs, sampling_log_probs, mask).exp()
    kept = torch.where((ratio >= low) & (ratio <= high), ratio, 0.0)
    return _seen(kept.expand(mask.shape), mask)


def geometric_masked(
    old_log_probs: Tensor,
    sampling_log_probs: Tensor,
    mask: Tensor,
    *,
    low: float = 0.999,
    high: float = 1.001,
    cap: float = 2.0,
) -> Tensor:
    """Truncated token weights of rows whose geometric mean lies in [low, high]; others get 0."""
    total = _row_sum(old_log_probs, sampling_log_probs, mask)
    mean = (total / mask.sum(dim=1, keepdim=True).clamp(min=1)).exp()
    weights = token_truncated(old_log_probs, sampling_log_probs, mask, cap=cap)
    return torch.where((mean >= low) & (mean <= high), weights, 0.0)


def off_policy_mask(
    log_probs: Tensor,
    sampling_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    delta: float = 0.5,
) -> Tensor:
    """0 for a row that lost and that the policy has left, else 1: DeepSeek-V3.2, equation 9.

    A row is dropped where its advantage is negative and the mean over its tokens of
    ``sampling_log_probs - log_probs`` exceeds ``delta``.
    """
    gap = _seen(sampling_log_probs, mask) - _seen(log_probs.detach(), mask)
    mean = gap.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return _seen(1.0 - ((advantages < 0) & (mean > delta)).to(gap.dtype), mask)


def _seen(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, 0.0)


def _difference(old_log_probs: Tensor, sampling_log_probs: Tensor, mask: Tensor) -> Tensor:
    return _seen(old_log_probs, mask) - _seen(sampling_log_probs, mask)


def _token_ratio(old_log_probs: Tensor, sampling_log_probs: Tensor, mask: Tensor) -> Tensor:
    difference = _difference(old_log_probs, sampling_log_probs, mask)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def _row_sum(old_log_probs: Tensor, sampling_log_probs: Tensor, mask: Tensor) -> Tensor:
    total = _difference(old_log_probs, sampling_log_probs, mask).sum(dim=1, keepdim=True)
    return total.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
