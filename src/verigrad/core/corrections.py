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

from verigrad.core.ratios import log_ratio, row_mean, row_mean_ratio, row_product, seen, token_ratio


def token_truncated(
    old_log_probs: Tensor, sampling_log_probs: Tensor, mask: Tensor, *, cap: float = 2.0
) -> Tensor:
    """``min(ratio, cap)`` per token: truncated importance sampling."""
    return seen(token_ratio(old_log_probs, sampling_log_probs, mask).clamp(max=cap), mask)


def token_masked(
    old_log_probs: Tensor,
    sampling_log_probs: Tensor,
    mask: Tensor,
    *,
    low: float = 0.5,
    high: float = 2.0,
) -> Tensor:
    """The ratio where it lies in [low, high], else 0: IcePop (2510.18855)."""
    ratio = token_ratio(old_log_probs, sampling_log_probs, mask)
    return torch.where(mask & (ratio >= low) & (ratio <= high), ratio, 0.0)


def sequence_truncated(
    old_log_probs: Tensor, sampling_log_probs: Tensor, mask: Tensor, *, cap: float = 2.0
) -> Tensor:
    """``min(product of the row's ratios, cap)`` on every token: unbiased but for the cap."""
    ratio = row_product(old_log_probs, sampling_log_probs, mask).clamp(max=cap)
    return seen(ratio.expand(mask.shape), mask)


def sequence_masked(
    old_log_probs: Tensor,
    sampling_log_probs: Tensor,
    mask: Tensor,
    *,
    low: float = 0.5,
    high: float = 2.0,
) -> Tensor:
    """The product of the row's ratios where it lies in [low, high]; other rows get 0."""
    ratio = row_product(old_log_probs, sampling_log_probs, mask)
    kept = torch.where((ratio >= low) & (ratio <= high), ratio, 0.0)
    return seen(kept.expand(mask.shape), mask)


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
    mean = row_mean_ratio(old_log_probs, sampling_log_probs, mask)
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
    gap = log_ratio(sampling_log_probs, log_probs.detach(), mask)
    mean = row_mean(gap, mask)
    return seen(1.0 - ((advantages < 0) & (mean > delta)).to(gap.dtype), mask)
