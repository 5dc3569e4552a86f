"""What a step is computed from, as tensors."""

from dataclasses import dataclass

from torch import Tensor

from verigrad.types import Prompt


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Completions laid out as tensors: what a policy scores.

    Example: one prompt, two completions (5, 6, stop=2) and (7,), padded to T = 3:
        token_ids [[5, 6, 2], [7, 0, 0]], lengths [3, 1], mask [[1, 1, 1], [1, 0, 0]],
        prompts (Prompt(problem_id="p", token_ids=(1, 4)),), group_index [0, 0]
    """

    prompts: tuple[Prompt, ...]
    """Each prompt once, ``P`` of them."""

    group_index: Tensor
    """``[B]`` int64: which prompt each row continues."""

    token_ids: Tensor
    """``[B, T]`` int64, 0 beyond a row's length."""

    lengths: Tensor
    """``[B]`` int64, tokens of each completion."""

    mask: Tensor
    """``[B, T]`` bool, true on tokens that the policy chose and that train."""

    sampling_log_probs: Tensor
    """``[B, T]``, by the engine while sampling; 0 beyond a row's length."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is found out about a step's tokens before the first update on them, without gradient."""

    old_log_probs: Tensor
    """``[B, T]``, by the trainer's own policy."""

    entropy: Tensor
    """``[B, T]`` in nats, of the same policy."""

    reference_log_probs: Tensor | None
    """``[B, T]``, by the reference policy; None without one."""


@dataclass(frozen=True, kw_only=True)
class Batch(Tokens):
    """What one optimiser update is computed from."""

    old_log_probs: Tensor | None
    """``[B, T]``, by the trainer before its first update; None when the only update on this batch
    is the first, whose own log-probs they are."""

    advantages: Tensor
    """``[B, T]``, 0 off the mask."""

    weights: Tensor
    """``[B, T]``, each token's weight in the policy loss; fixed for the whole update."""

    correction: Tensor | None = None
    """``[B, T]``, what multiplies the policy loss where another policy sampled; None for 1."""

    reference_log_probs: Tensor | None = None
    """``[B, T]``, by the reference policy; None without a divergence term in the loss."""

    kl_weights: Tensor | None = None
    """``[B, T]``, each token's weight in the divergence term; None exactly without one."""

    entropy_weights: Tensor | None = None
    """``[B, T]``, each token's weight in the entropy bonus; None without one."""

    def row_trains(self) -> Tensor:
        """``[B]`` bool: some term of the loss has a weight at some token of the row."""
        policy = self.weights * self.advantages
        if self.correction is not None:
            policy = policy * self.correction
        trains = (policy != 0).any(dim=1)
        for weights in (self.kl_weights, self.entropy_weights):
            if weights is not None:
                trains = trains | (weights != 0).any(dim=1)
        return trains


@dataclass(frozen=True, kw_only=True)
class LossOutput:
    """The loss of some rows and what was seen there, as sums that add up over passes and ranks."""

    loss: Tensor
    """Scalar; the sum over passes is the loss of the batch."""

    tokens: int
    """Tokens that trained."""

    clipped: int
    """Of those, how many with an advantage had no gradient from the policy loss."""

    entropy: float
    """Sum over those tokens of the entropy of the policy, in nats."""

    kl: float | None
    """Sum over those tokens of k3, an estimate of the divergence; None without a reference."""

    mismatch: float
    """Sum over those tokens of |trainer's log-prob before the update - engine's|."""

    largest_mismatch: float
    """Largest of these differences."""

    def __add__(self, other: "LossOutput") -> "LossOutput":
        """The output of both parts together."""
        return LossOutput(
            loss=self.loss + other.loss,
            tokens=self.tokens + other.tokens,
            clipped=self.clipped + other.clipped,
            entropy=self.entropy + other.entropy,
            kl=None if self.kl is None or other.kl is None else self.kl + other.kl,
            mismatch=self.mismatch + other.mismatch,
            largest_mismatch=max(self.largest_mismatch, other.largest_mismatch),
        )
