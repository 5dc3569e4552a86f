"""Estimators of the divergence of the policy from a reference, per token.

All take ``log_probs`` (with gradient), ``old_log_probs``, ``reference_log_probs`` and ``mask``,
each ``[B, T]``, and return ``[B, T]``; ``d = log_probs - reference_log_probs``. What a value
estimates and what its gradient as a loss descends are two things; each docstring says both, for
samples of the policy itself. "Reverse" is KL(policy || reference), what one usually wants;
"forward" is KL(reference || policy). Derivations: 2506.09477, 2510.01555.

As losses all of them see only the token at hand. For the exact gradient of a sequence's divergence
put :func:`k1` in the reward, summed over the tokens.
"""

from torch import Tensor

from verigrad.core.ratios import bounded, log_ratio, seen, token_ratio


def k1(
    log_probs: Tensor, old_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    """``d``. Value: reverse, unbiased. Expected gradient as a loss: 0, so for the reward only."""
    del old_log_probs
    return log_ratio(log_probs, reference_log_probs, mask)


def absolute(
    log_probs: Tensor, old_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    """``|d|``. A size to look at; no divergence in value or in gradient."""
    del old_log_probs
    return log_ratio(log_probs, reference_log_probs, mask).abs()


def k2(
    log_probs: Tensor, old_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    """``d ** 2 / 2``. Value: biased. Gradient as a loss: reverse, on-policy."""
    del old_log_probs
    return log_ratio(log_probs, reference_log_probs, mask).square() / 2


def k3(
    log_probs: Tensor,
    old_log_probs: Tensor,
    reference_log_probs: Tensor,
    mask: Tensor,
    *,
    limit: float | None = None,
) -> Tensor:
    """``exp(-d) + d - 1``: Schulman's third; GRPO 2402.03300, equation 4.

    Value: reverse, unbiased, never negative. Gradient as a loss: FORWARD. It reproduces published
    runs. ``limit`` clamps the result, as some trainers do, and with it removes the gradient far
    from the reference.
    """
    del old_log_probs
    d = bounded(log_ratio(log_probs, reference_log_probs, mask))
    value = (-d).exp() + d - 1
    return seen(value if limit is None else value.clamp(max=limit), mask)


def k3_value_k2_gradient(
    log_probs: Tensor, old_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    """Value of :func:`k3`, gradient of :func:`k2`: reverse in both, on-policy."""
    value = k3(log_probs, old_log_probs, reference_log_probs, mask)
    carrier = k2(log_probs, old_log_probs, reference_log_probs, mask)
    return value.detach() + carrier - carrier.detach()


def ratio_k3(
    log_probs: Tensor, old_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    """``ratio * k3`` with the gradient through the ratio: DeepSeek-V3.2 2512.02556, equation 7.

    Value and gradient: reverse, on-policy and for samples of the old policy. On-policy the ratio is
    1 while its gradient is not, so it is no decoration there.
    """
    ratio = token_ratio(log_probs, old_log_probs, mask)
    return ratio * k3(log_probs, old_log_probs, reference_log_probs, mask)


def ratio_k1(
    log_probs: Tensor, old_log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor
) -> Tensor:
    """``ratio * k1`` with the gradient through the ratio: reverse in both, off-policy too."""
    return token_ratio(log_probs, old_log_probs, mask) * log_ratio(
        log_probs, reference_log_probs, mask
    )
