"""Estimators of the divergence to a reference policy, per token.

``log_probs`` (with gradient), ``reference_log_probs``, ``mask`` and the result are ``[B, T]``.
"""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""The log-ratio is clamped to this size. The result is not: that would remove the gradient exactly
where the policy has left the reference."""


def k3(log_probs: Tensor, reference_log_probs: Tensor, mask: Tensor) -> Tensor:
    """Schulman's third estimator: ``exp(-d) + d - 1`` with ``d = log_probs - reference_log_probs``.

    GRPO 2402.03300, equation 4. Never negative, and its mean over samples of the policy is
    KL(policy || reference). As a loss, though, its expected gradient is that of the other
    direction, KL(reference || policy): it reproduces published runs.
    """
    d = torch.where(mask, log_probs, 0.0) - torch.where(mask, reference_log_probs, 0.0)
    d = d.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return torch.where(mask, torch.exp(-d) + d - 1, 0.0)
