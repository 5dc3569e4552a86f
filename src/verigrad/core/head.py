"""Log-probs and entropy straight from hidden states, without a table of all logits.

The table ``[N, V]`` is the largest thing in training: 4,096 tokens of a vocabulary of 151,936 take
2.5 GB, and its gradient as much again. Here a few rows of it exist at a time. Where there are more,
they are computed once in the forward pass and once more in the backward pass, which costs a third
more arithmetic in the head and no more time, because the table need not go through memory (Liger,
2410.10989, and cut cross-entropy, 2411.09009, do this for the cross-entropy loss on GPUs).
"""

from typing import Any

import torch
from torch import Tensor

LOGITS_AT_ONCE = 1 << 24
"""Most logits that exist at a time: 64 MB in float32."""


def head_scores(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    token_ids: Tensor,
    temperature: float,
    *,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """What ``core.logprobs`` says of the logits ``hidden @ weight.T + bias``.

    Args:
        hidden: ``[N, H]``, what predicts each token.
        weight: ``[V, H]`` of the vocabulary head.
        bias: ``[V]``, or None.
        token_ids: ``[N]`` int64.
        temperature: divides the logits; at 0 they are left as they are.
        entropy_gradient: whether gradients flow through the entropy too.

    Returns:
        Log-prob of each token and entropy in nats, ``[N]`` each, float32 or float64.
    """
    scale = 1.0 if temperature == 0 else 1.0 / temperature
    log_probs, entropy = _Head.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, token_ids, scale
    )
    return log_probs, entropy if entropy_gradient else entropy.detach()


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        token_ids: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        log_probs, normalisers, entropies = [], [], []
        products, spare = _tables(hidden, weight), _tables(hidden, weight)
        for some, ids in _chunks(weight, hidden, token_ids):
            logits = _logits(some, weight, bias, scale, products)
            largest = logits.amax(dim=-1)
            # Of one table and another, as new ones would be pages of zeros first.
            shares = torch.sub(logits, largest.unsqueeze(-1), out=spare[: len(some)]).exp_()
            total = shares.sum(dim=-1)
            normaliser = largest + total.log()
            log_probs.append(logits.gather(-1, ids.unsqueeze(-1)).squeeze(-1) - normaliser)
            entropies.append(normaliser - shares.mul_(logits).sum(dim=-1) / total)
            normalisers.append(normaliser)
        # The logits of a single chunk may stay for the backward pass: no more exist at a time.
        kept = products if len(normalisers) == 1 else None
        entropy = torch.cat(entropies)
        ctx.save_for_backward(
            hidden, weight, bias, token_ids, torch.cat(normalisers), entropy, kept
        )
        ctx.scale = scale
        return torch.cat(log_probs), entropy

    @staticmethod
    def backward(
        ctx: Any, log_prob_gradient: Tensor, entropy_gradient: Tensor
    ) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, token_ids, normalisers, entropies, kept = ctx.saved_tensors
        for_hidden, for_weight, for_bias, _, _ = ctx.needs_input_grad
        hidden_gradient = torch.empty_like(hidden) if for_hidden else None
        weight_gradient = torch.zeros_like(weight) if for_weight else None
        bias_gradient = torch.zeros_like(bias) if for_bias else None
        start = 0
        products = _tables(hidden, weight)
        for some, ids, normaliser, entropy, by_log_prob, by_entropy in _chunks(
            weight, hidden, token_ids, normalisers, entropies, log_prob_gradient, entropy_gradient
        ):
            logits = _logits(some, weight, bias, ctx.scale, products) if kept is None else kept
            centred = torch.sub(logits, normaliser.unsqueeze(-1), out=products[: len(some)])
            gradient = _logit_gradient(centred, ids, entropy, by_log_prob, by_entropy)
            if ctx.scale != 1.0:
                gradient *= ctx.scale
            gradient = gradient.to(hidden.dtype)
            if hidden_gradient is not None:
                torch.mm(gradient, weight, out=hidden_gradient[start : start + len(some)])
            if weight_gradient is not None:
                weight_gradient.addmm_(gradient.T, some)
            if bias_gradient is not None:
                bias_gradient += gradient.sum(dim=0)
            start += len(some)
        return hidden_gradient, weight_gradient, bias_gradient, None, None


def _chunks(weight: Tensor, *values: Tensor) -> Any:
    """The same few rows of each value, so that a chunk's logits stay below LOGITS_AT_ONCE."""
    rows = _rows_at_once(weight)
    return zip(*(value.split(rows) for value in values), strict=True)


def _rows_at_once(weight: Tensor) -> int:
    return max(1, LOGITS_AT_ONCE // weight.shape[0])


def _tables(hidden: Tensor, weight: Tensor) -> Tensor:
    """Room for the logits of the largest chunk, in float32 at least."""
    rows = min(len(hidden), _rows_at_once(weight))
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    return hidden.new_empty(rows, weight.shape[0], dtype=dtype)


def _logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, scale: float, table: Tensor
) -> Tensor:
    """Scaled logits of a chunk, in the first rows of a table."""
    logits = table[: len(hidden)]
    if logits.dtype == hidden.dtype:
        torch.mm(hidden, weight.T, out=logits)
    else:
        logits.copy_(hidden @ weight.T)
    if bias is not None:
        logits += bias
    if scale != 1.0:
        logits *= scale
    # A logit of -inf has probability 0, and 0 * -inf would be no number, nor would what overflows.
    return logits.clamp_(min=torch.finfo(logits.dtype).min / 2**20)


def _logit_gradient(
    centred: Tensor,
    token_ids: Tensor,
    entropy: Tensor,
    by_log_prob: Tensor,
    by_entropy: Tensor,
) -> Tensor:
    """Of the scaled logits z: ``g (onehot - p) - g' p (z - lse + H)``, in the place of z - lse."""
    if by_entropy.any():
        from_entropy = (centred + entropy.unsqueeze(-1)).mul_(by_entropy.unsqueeze(-1))
        gradient = centred.exp_().mul_(from_entropy.add_(by_log_prob.unsqueeze(-1)).neg_())
    else:
        gradient = centred.exp_().mul_(-by_log_prob.unsqueeze(-1))
    return gradient.scatter_add_(-1, token_ids.unsqueeze(-1), by_log_prob.unsqueeze(-1))
