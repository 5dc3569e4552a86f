"""Log-ratios of two policies under a mask, and the ratios of tokens and of rows made of them.

``log_probs``, ``others`` and ``mask`` are ``[B, T]``. Whatever stands behind the mask, inf and nan
included, is replaced by 0 before anything is computed with it: 0 * inf is nan, in the backward pass
too.
"""

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to this size before exp, so that a ratio stays below 4.9e8."""


def seen(values: Tensor, mask: Tensor) -> Tensor:
    """The values where the mask is true, 0 elsewhere."""
    return torch.where(mask, values, 0.0)


def log_ratio(log_probs: Tensor, others: Tensor, mask: Tensor) -> Tensor:
    """``[B, T]``: ``log_probs - others``, 0 off the mask, not clamped."""
    return seen(log_probs, mask) - seen(others, mask)


def bounded(log_ratios: Tensor) -> Tensor:
    """Log-ratios of at most LOG_RATIO_LIMIT in size; beyond it the gradient is 0."""
    return log_ratios.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def token_ratio(log_probs: Tensor, others: Tensor, mask: Tensor) -> Tensor:
    """``[B, T]``: the ratio of each token, 1 off the mask."""
    return bounded(log_ratio(log_probs, others, mask)).exp()


def row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """``[B, 1]``: mean over the tokens of a row, 0 for an empty one; values are 0 off the mask."""
    return values.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)


def row_mean_ratio(log_probs: Tensor, others: Tensor, mask: Tensor) -> Tensor:
    """``[B, 1]``: geometric mean of a row's ratios, 1 for an empty row."""
    return bounded(row_mean(log_ratio(log_probs, others, mask), mask)).exp()


def row_product(log_probs: Tensor, others: Tensor, mask: Tensor) -> Tensor:
    """``[B, 1]``: product of a row's ratios, 1 for an empty row."""
    return bounded(log_ratio(log_probs, others, mask).sum(dim=1, keepdim=True)).exp()
