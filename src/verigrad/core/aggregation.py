"""Which weight each token has in the loss.

Every rule of the family is linear in the loss per token, so it is a matrix of weights ``[B, T]``,
made once for a whole optimiser update: ``loss = (weights * per_token).sum()``. A batch may then be
cut between rows in any way without changing the gradient, because no pass computes a denominator.

``mask`` is ``[B, T]`` bool; ``group_index`` is ``[B]``. Weights are float64, 0 where the mask is
false, and 0 everywhere when nothing trains.
"""

import torch
from torch import Tensor


def token_mean(mask: Tensor, group_index: Tensor) -> Tensor:
    """Every token alike: ``1 / (all tokens)``. DAPO as implemented, 2503.14476."""
    del group_index
    return _share(mask, mask.sum())


def seq_mean_token_mean(mask: Tensor, group_index: Tensor) -> Tensor:
    """Every row that has tokens alike: ``1 / (rows with tokens * tokens of the row)``. GRPO."""
    del group_index
    lengths = mask.sum(dim=1, keepdim=True)
    return _share(mask, (lengths > 0).sum() * lengths)


def seq_mean_token_mean_all(mask: Tensor, group_index: Tensor) -> Tensor:
    """As :func:`seq_mean_token_mean`, with empty rows counted: ``1 / (B * tokens of the row)``."""
    del group_index
    return _share(mask, len(mask) * mask.sum(dim=1, keepdim=True))


def seq_mean_token_sum(mask: Tensor, group_index: Tensor) -> Tensor:
    """Sum over a row, mean over rows that have tokens: the policy gradient's own weighting."""
    del group_index
    return _share(mask, (mask.sum(dim=1) > 0).sum())


def const_norm(mask: Tensor, group_index: Tensor, *, length: int) -> Tensor:
    """``1 / (B * length)`` with a constant length: Dr. GRPO 2503.20783.

    Args:
        mask: ``[B, T]`` bool.
        group_index: plays no part.
        length: the longest completion the configuration allows, never the padded width.
    """
    del group_index
    return _share(mask, torch.tensor(len(mask) * length))


def group_token_mean(mask: Tensor, group_index: Tensor) -> Tensor:
    """Token mean within each group, mean over groups that have tokens. DAPO as written."""
    lengths = mask.sum(dim=1)
    groups = int(group_index.max()) + 1 if len(group_index) else 0
    tokens = lengths.new_zeros(groups).index_add_(0, group_index, lengths)
    return _share(mask, ((tokens > 0).sum() * tokens[group_index]).unsqueeze(1))


def _share(mask: Tensor, denominator: Tensor) -> Tensor:
    """``1 / denominator`` on the mask, 0 off it and where the denominator is 0."""
    return mask.double() / denominator.to(mask.device).double().clamp(min=1)
