"""Log-probs and entropy of the policy that is sampled from: softmax of logits over temperature.

Sampler and trainer both come here, so that they mean the same policy. Computed in float32 at
least, whatever the dtype of the logits.
"""

import torch
from torch import Tensor


def token_log_probs(
    logits: Tensor, token_ids: Tensor, temperature: float, states: Tensor | None = None
) -> Tensor:
    """Natural log-probability of one given token per row, or of some tokens of some rows.

    The chosen logit less the log of the normaliser, so that no ``[N, V]`` table of log-probs is
    made. At temperature 0 (greedy) the log-probs are those of the untempered policy.

    Args:
        logits: ``[N, V]``, or ``[S, V]`` with ``states``.
        token_ids: ``[N]`` int64.
        temperature: divides the logits; at least 0.
        states: ``[N]`` int64, the row of the logits that each token was drawn from; None where
            every token has a row of its own.

    Returns:
        ``[N]``, float32 or float64, each at most 0.
    """
    logits = tempered(logits, temperature)
    normalisers = logits.logsumexp(dim=-1)
    if states is not None:
        return logits[states, token_ids] - normalisers[states]
    chosen = logits.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1)
    return chosen - normalisers


def entropy(logits: Tensor, temperature: float) -> Tensor:
    """Entropy in nats of each row's distribution: ``lse(z) - sum(p z)``, ``[N, V] -> [N]``.

    A logit of -inf has probability 0 and contributes 0.
    """
    logits = tempered(logits, temperature)
    probabilities = logits.softmax(dim=-1)
    finite = torch.where(probabilities > 0, logits, 0.0)
    return logits.logsumexp(dim=-1) - (probabilities * finite).sum(dim=-1)


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Logits over temperature in float32 or better; a temperature of 0 or 1 leaves them as is."""
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    return logits if temperature in (0, 1) else logits / temperature
