"""What is done to rewards and masks before the loss: length, divergence, entropy."""

import torch
from torch import Tensor


def soft_overlong(lengths: Tensor, *, longest: int, cache: int) -> Tensor:
    """Punishment for completions near the length limit: DAPO 2503.14476, equation 13.

        0 up to longest - cache, then falling linearly to -1 at longest, -1 beyond

    Args:
        lengths: ``[B]`` tokens of each completion.
        longest: the longest completion the configuration allows.
        cache: how many tokens before that the punishment sets in; at least 1.

    Returns:
        ``[B]`` float64 in [-1, 0], to be added to the rewards.
    """
    return ((longest - cache - lengths.double()) / cache).clamp(-1.0, 0.0)


def divergence_in_reward(rewards: Tensor, kl: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """``r_i - beta * sum over the row's tokens of kl``, before any baseline.

    Args:
        rewards: ``[B]`` float64.
        kl: ``[B, T]``, old log-probs less reference log-probs.
        mask: ``[B, T]`` bool.
        beta: weight of the divergence. As a term of the reward it reaches every earlier token, so
            it is not comparable with the beta of a term in the loss.
    """
    return rewards - beta * torch.where(mask, kl.double(), 0.0).sum(dim=1)


def top_entropy(entropy: Tensor, mask: Tensor, *, fraction: float) -> Tensor:
    """The tokens the policy was least sure of: 2506.01939 trains on these only.

    Args:
        entropy: ``[B, T]`` in nats, of the whole step's batch.
        mask: ``[B, T]`` bool.
        fraction: share of the tokens to keep, in (0, 1].

    Returns:
        ``[B, T]`` bool: entropy at least the (1 - fraction) quantile, interpolated linearly.
    """
    seen = entropy[mask].double()
    if not len(seen):
        return mask
    # torch.quantile takes at most 16 million values, so the sorted values are interpolated here.
    ordered = seen.sort().values
    place = (1 - fraction) * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    threshold = ordered[low] + (place - low) * (ordered[high] - ordered[low])
    return mask & (entropy.double() >= threshold)
