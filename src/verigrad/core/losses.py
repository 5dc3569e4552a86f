"""Log-probs and advantages -> loss per token, to be minimised.

Every function takes ``log_probs``, ``old_log_probs``, ``advantages`` and ``mask``, all ``[B, T]``,
and returns ``[B, T]``. Only ``log_probs`` carries a gradient. Whatever stands behind the mask, inf
and nan included, is replaced by 0 before anything is computed with it: 0 * inf is nan, in the
backward pass too.

Bounds are distances from 1: ``clip_low = 0.2`` clips a ratio at 0.8. ``A`` is the advantage,
``ratio = exp(log_probs - old_log_probs)``, ``sg`` stops the gradient.
"""

import torch
from torch import Tensor

from verigrad.core.ratios import (
    log_ratio,
    row_mean,
    row_mean_ratio,
    row_product,
    seen,
    token_ratio,
)

PPO_CLIP = 0.2
"""The bounds of :func:`ppo_clip` where none are given."""


def reinforce(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Williams 1992: ``-A log pi``; gradient ``-A``. ``old_log_probs`` plays no part."""
    del old_log_probs
    return -seen(advantages, mask) * seen(log_probs, mask)


def on_policy(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """``-A exp(log pi - sg(log pi))``: value ``-A``, gradient ``-A``."""
    del old_log_probs
    return -seen(advantages, mask) * token_ratio(log_probs, log_probs.detach(), mask)


def ppo_clip(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = PPO_CLIP,
    clip_high: float = PPO_CLIP,
    dual_clip: float | None = None,
    delta: float | None = None,
) -> Tensor:
    """The clipped surrogate: PPO 1707.06347, as in GRPO 2402.03300; bounds apart as in DAPO.

        loss = -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)

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
        dual_clip: above 1; where A < 0 the loss is at most ``-dual_clip * A`` (1912.09729).
        delta: above 1 + clip_high; the ratio of the unclipped branch is at most this (INTELLECT-2,
            2505.07291, section 4.1). Both bound what a negative advantage can do at a large ratio.
    """
    advantages = seen(advantages, mask)
    ratio = token_ratio(log_probs, old_log_probs, mask)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    unclipped = ratio if delta is None else ratio.clamp(max=delta)
    surrogate = torch.minimum(unclipped * advantages, clipped * advantages)
    if dual_clip is not None:
        floor = torch.maximum(surrogate, dual_clip * advantages)
        surrogate = torch.where(advantages < 0, floor, surrogate)
    return seen(-surrogate, mask)


def cispo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 1.0,
    clip_high: float = 4.0,
) -> Tensor:
    """Clipped importance weights, never a clipped gradient: MiniMax-M1 2506.13585, equations 4-5.

        loss = -sg(clip(ratio, 1 - clip_low, 1 + clip_high)) * A * log pi

    The defaults keep the weight in [0, 5], ScaleRL's (2510.13786). Other trainers give the same
    name to the bound itself rather than to its distance from 1.
    """
    weight = token_ratio(log_probs, old_log_probs, mask).detach().clamp(1 - clip_low, 1 + clip_high)
    return -weight * seen(advantages, mask) * seen(log_probs, mask)


def gspo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Tensor:
    """One ratio per sequence, the geometric mean of its tokens': GSPO 2507.18071, equations 5-7.

        s    = exp(mean over the row's tokens of log_probs - old_log_probs)
        loss = -min(s * A, clip(s) * A), the same on every token of the row

    Meant for seq_mean_token_mean. A geometric mean stays close to 1, hence the small bounds.
    """
    ratio = row_mean_ratio(log_probs, old_log_probs, mask)
    return _clipped_surrogate(ratio, advantages, mask, clip_low, clip_high)


def gspo_token(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Tensor:
    """GSPO with a gradient per token, so that advantages may differ within a row: equations 13-14.

    The ratio is ``sg(s) * exp(log pi - sg(log pi))``. For one advantage per row it has the value
    and the gradient of :func:`gspo`.
    """
    sequence = row_mean_ratio(log_probs, old_log_probs, mask).detach()
    ratio = sequence * token_ratio(log_probs, log_probs.detach(), mask)
    return _clipped_surrogate(ratio, advantages, mask, clip_low, clip_high)


def gmpo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.4,
    clip_high: float = 0.4,
) -> Tensor:
    """Tokens clipped in log space, then their geometric mean: GMPO 2507.20673.

        x    = min(d, clamp(d)) where A > 0, max(d, clamp(d)) where A < 0;  d = the log-ratio
        loss = -A * exp(mean over the row's tokens of x), the same on every token of the row

    The bounds are distances from 0 of the log-ratio. Meant for seq_mean_token_mean.
    """
    advantages = seen(advantages, mask)
    distance = log_ratio(log_probs, old_log_probs, mask)
    clamped = distance.clamp(-clip_low, clip_high)
    kept = torch.where(
        advantages > 0, torch.minimum(distance, clamped), torch.maximum(distance, clamped)
    )
    return seen(-advantages * row_mean(kept, mask).exp(), mask)


def sapo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> Tensor:
    """A soft gate in the place of the clip: SAPO 2511.20347.

        loss = -A * (4 / tau) * sigmoid(tau * (ratio - 1)),  tau by the sign of A

    The gradient at ratio 1 is ``-A``; the value there is ``-2 A / tau`` and says nothing.
    """
    advantages = seen(advantages, mask)
    tau = _by_sign(advantages > 0, tau_positive, tau_negative, advantages)
    gate = torch.sigmoid(tau * (token_ratio(log_probs, old_log_probs, mask) - 1))
    return seen(-advantages * 4 / tau * gate, mask)


def topr(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Tapered off-policy REINFORCE 2503.14286: only losers are weighted down.

    loss = -sg(w) * A * log pi;  w = 1 where A >= 0, else min(1, product of the row's ratios)
    """
    advantages = seen(advantages, mask)
    product = row_product(log_probs, old_log_probs, mask).clamp(max=1.0)
    weight = torch.where(advantages < 0, product, 1.0).detach()
    return -weight * advantages * seen(log_probs, mask)


def dppo_tv(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    tv_low: float = 0.2,
    tv_high: float = 0.2,
) -> Tensor:
    """A trust region in probability, not in the ratio: DPPO 2602.04879.

    loss = -A * ratio, dropped where A > 0 and pi - pi_old > tv_high,
                               or where A < 0 and pi - pi_old < -tv_low
    """
    advantages = seen(advantages, mask)
    moved = (seen(log_probs, mask).exp() - seen(old_log_probs, mask).exp()).detach()
    left = ((advantages > 0) & (moved > tv_high)) | ((advantages < 0) & (moved < -tv_low))
    ratio = token_ratio(log_probs, old_log_probs, mask)
    return torch.where(mask & ~left, -advantages * ratio, 0.0)


def luspo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Tensor:
    """GSPO times the row's length, which undoes its bias to short rows: LUSPO 2602.05261."""
    lengths = mask.sum(dim=1, keepdim=True)
    loss = gspo(log_probs, old_log_probs, advantages, mask, clip_low=clip_low, clip_high=clip_high)
    return lengths * loss


def vespo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    k_positive: float = 2.0,
    lambda_positive: float = 3.0,
    k_negative: float = 3.0,
    lambda_negative: float = 2.0,
) -> Tensor:
    """A smooth weight of the sequence's ratio: VESPO 2602.10693.

    loss = -sg(phi(W)) * A * log pi;  phi(W) = exp(lambda + k log W - lambda W)
    W = product of the row's ratios, at least 1e-8; k and lambda by the sign of A
    """
    advantages = seen(advantages, mask)
    product = row_product(log_probs, old_log_probs, mask).clamp(min=1e-8)
    k = _by_sign(advantages >= 0, k_positive, k_negative, advantages)
    scale = _by_sign(advantages >= 0, lambda_positive, lambda_negative, advantages)
    weight = torch.exp(scale + k * product.log() - scale * product).detach()
    return seen(-weight * advantages * seen(log_probs, mask), mask)


def _clipped_surrogate(
    ratio: Tensor, advantages: Tensor, mask: Tensor, clip_low: float, clip_high: float
) -> Tensor:
    advantages = seen(advantages, mask)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return seen(-torch.minimum(ratio * advantages, clipped * advantages), mask)


def _by_sign(positive: Tensor, value: float, other: float, like: Tensor) -> Tensor:
    """One number where true, another elsewhere, in the dtype of a tensor."""
    return torch.where(positive, torch.full_like(like, value), torch.full_like(like, other))
