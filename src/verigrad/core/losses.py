"""Log-probs and advantages -> loss per token, to be minimised.

Every function takes ``log_probs``, ``old_log_probs``, ``advantages`` and ``mask``, all ``[B, T]``,
and returns ``[B, T]``. Only ``log_probs`` carries a gradient. Whatever stands behind the mask, inf
and nan included, is replaced by 0 before anything is computed with it: 0 * inf is nan, in the
backward pass too.
"""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to this size, so that a ratio stays below 4.9e8."""


def reinforce(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Williams 1992: ``-A log pi``; gradient ``-A``. ``old_log_probs`` plays no part."""
    del old_log_probs
    return -_seen(advantages, mask) * _seen(log_probs, mask)


def ppo_clip(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Tensor:
    """The clipped surrogate: PPO 1707.06347, as in GRPO 2402.03300; bounds apart as in DAPO.

        ratio = exp(log_probs - old_log_probs)
        loss  = -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)

    The gradient is ``-ratio * A``, and 0 where the ratio has left the bounds in the direction that
    A pushes it. At old = new the value averages to about 0 while the gradient is ``-A``: a loss of
    0 does not mean that nothing is learned.

    Args:
        log_probs: ``[B, T]`` of the policy being trained, with gradient.
        old_log_probs: ``[B, T]`` of the policy before its first update on this batch.
        advantages: ``[B, T]``.
        mask: ``[B, T]`` bool, true on tokens that train.
        clip_low: distance of the lower bound from 1, in [0, 1].
        clip_high: distance of the upper bound from 1, at least 0.
    """
    advantages = _seen(advantages, mask)
    ratio = _ratio(log_probs, old_log_probs, mask)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return torch.where(mask, -torch.minimum(ratio * advantages, clipped * advantages), 0.0)


def clipped_tokens(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Tensor:
    """Where :func:`ppo_clip` has no gradient because of its bounds: ``[B, T]`` bool."""
    ratio = _ratio(log_probs, old_log_probs, mask)
    too_high = (advantages > 0) & (ratio > 1 + clip_high)
    too_low = (advantages < 0) & (ratio < 1 - clip_low)
    return mask & (too_high | too_low)


def _seen(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, 0.0)


def _ratio(log_probs: Tensor, old_log_probs: Tensor, mask: Tensor) -> Tensor:
    log_ratio = _seen(log_probs, mask) - _seen(old_log_probs, mask)
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
