"""Random numbers that depend on where they are used, not on what was drawn before.

A key per completion is a hash of (seed, purpose, step, slot, completion); a number per position
comes from the key and the position by SplitMix64 (Steele et al. 2014). So a token's random number
does not change when other rows finish or when the run is resumed, and there is no generator state
to save.
"""

import torch
from torch import Tensor


def as_int64(number: int) -> int:
    """The same 64 bits, read as a signed number, as tensors hold them."""
    return number - (1 << 64) if number >= 1 << 63 else number


def uniform(keys: Tensor, position: Tensor | int) -> Tensor:
    """One number in [0, 1) per key, for one position or one of its own.

    Args:
        keys: ``[N]`` int64, one per completion: 64 hashed bits.
        position: index of the token within its completion, from 0; ``[N]`` int64 or one for all.

    Returns:
        ``[N]`` float64, multiples of 2**-52, on the device of the keys.
    """
    counter = torch.as_tensor(position, device=keys.device) + 1
    # The product of two int64 wraps around, which is what SplitMix64 wants.
    bits = keys + counter * as_int64(0x9E3779B97F4A7C15)
    bits = (bits ^ _shift(bits, 30)) * as_int64(0xBF58476D1CE4E5B9)
    bits = (bits ^ _shift(bits, 27)) * as_int64(0x94D049BB133111EB)
    bits = bits ^ _shift(bits, 31)
    return _shift(bits, 12).double() * 2.0**-52


def draw_tokens(logits: Tensor, states: Tensor, uniforms: Tensor) -> Tensor:
    """Sample tokens by inverting the cumulative distribution.

    Args:
        logits: ``[S, V]``, already tempered.
        states: ``[N]`` int64, the row of the logits that each token is drawn from.
        uniforms: ``[N]`` float64 in [0, 1).

    Returns:
        ``[N]`` int64. A token of probability 0 is never drawn.
    """
    cumulative = logits.softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)
    targets = uniforms * cumulative[states, -1]
    # By halving, as torch.searchsorted does, which would want a copy of the row for every token.
    low = torch.zeros_like(states)
    high = torch.full_like(states, logits.shape[-1] - 1)
    for _ in range((logits.shape[-1] - 1).bit_length()):
        middle = (low + high) // 2
        reached = cumulative[states, middle] > targets
        low, high = torch.where(reached, low, middle + 1), torch.where(reached, middle, high)
    return high


def _shift(bits: Tensor, by: int) -> Tensor:
    """Shift right without copying the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
