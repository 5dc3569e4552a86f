"""An algorithm is a value that holds its functions.

``build.algorithm_from`` makes one from a configuration. In Python, or in a file of your own that a
configuration names, an :class:`Algorithm` is built from functions directly.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What an advantage function sees of a step.

    Example: two groups of two, the second row of the first group one token long:
        rewards [1, 0, 0, 0], group_index [0, 0, 1, 1], mask [[1, 1], [1, 0], [1, 1], [1, 1]]
    """

    rewards: Tensor
    """``[B]`` float64, of scored rollouts only, shaped (length, divergence) where that is on; a
    divergence that is ``per_token`` is not in them."""

    group_index: Tensor
    """``[B]`` int64, which group each row belongs to."""

    mask: Tensor
    """``[B, T]`` bool, true on tokens that train."""

    components: Tensor | None = None
    """``[B, Q]`` float64, the named parts of the rewards; None where verdicts have none, or the
    algorithm does not look at them."""

    component_weights: Tensor | None = None
    """``[B, Q]`` float64, their weights in each reward (tasks of a mixture may differ), or ``[Q]``
    where they are those of all; None exactly when ``components`` is."""

    kl: Tensor | None = None
    """``[B, T]``, old log-probs less reference log-probs; None without a reference policy."""


AdvantageFunction = Callable[[Scores], Tensor]
"""Gives ``[B]`` (one advantage per completion) or ``[B, T]`` (one per token), float64."""

LossFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(log_probs, old_log_probs, advantages, mask)`` to loss per token, each ``[B, T]``."""

AggregationFunction = Callable[[Tensor, Tensor], Tensor]
"""``(mask [B, T], group_index [B])`` to weights ``[B, T]``."""

CorrectionFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``(old_log_probs, sampling_log_probs, mask)`` to weights ``[B, T]``."""

DivergenceFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(log_probs, old_log_probs, reference_log_probs, mask)`` to divergence per token ``[B, T]``."""


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """A term that holds the policy to a reference."""

    beta: float
    """Its weight."""

    estimator: DivergenceFunction | None
    """The term in the loss; None puts k1 into the reward instead, before any baseline."""

    per_token: bool = False
    """Without an estimator: the advantage function subtracts the divergence itself, token by token,
    from ``Scores.kl``; otherwise the sum over the row is in the reward that it sees."""

    reference: str = "start"
    """A model, or "start" for the policy that the run begins with."""

    reset_every: int | None = None
    """After so many steps the reference becomes the current policy; None for never."""


@dataclass(frozen=True, kw_only=True)
class EntropyBonus:
    """A term that keeps the policy from becoming sure too early."""

    coefficient: float
    """Its weight at the start; it multiplies the mean entropy over trained tokens."""

    target: float | None = None
    """In nats: below it the weight grows by ``step`` per step, above it shrinks; None: constant."""

    step: float = 0.001
    """How much the weight changes per step; it stays at least 0."""


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """One objective: how rewards become advantages, advantages a loss, and tokens a sum."""

    name: str
    """Shown to people."""

    advantages: AdvantageFunction
    """Rewards to advantages."""

    loss: LossFunction
    """Loss per token, to be minimised."""

    aggregation: AggregationFunction
    """Weight per token."""

    divergence: Divergence | None = None
    """Holds the policy to a reference."""

    correction: CorrectionFunction | None = None
    """Weights for completions that another policy sampled."""

    off_policy_delta: float | None = None
    """Drops lost rows that the policy has left by more than this; see ``core.corrections``."""

    entropy: EntropyBonus | None = None
    """Keeps the policy from becoming sure."""

    top_entropy: float | None = None
    """Only this share of the tokens, the least sure ones, has a policy loss; None for all."""

    counts_no_signal: bool = True
    """Whether groups without signal stay in the denominators of the aggregation."""

    mask_truncated: bool = False
    """Whether completions that reached the length limit train; their rewards count either way."""

    punish_length: Callable[[Tensor], Tensor] | None = None
    """Lengths ``[B]`` to what is added to the rewards ``[B]``."""

    epochs: int = 1
    """How many times each batch is gone through."""

    minibatches: int = 1
    """Optimiser updates per epoch, each on its share of the rows with weights of its own."""

    max_staleness: int | None = None
    """Rollouts sampled more updates ago than this are left out, whole; None for no limit."""

    by_part: bool = True
    """Whether its advantages look at the named parts of the rewards, which every verdict of a step
    then has to have; where they do not, verdicts may have any."""

    smallest_group: int = 1
    """Fewest completions per problem that its advantages are defined for; a group of which fewer
    are left, because verifications failed, counts as one without signal."""

    notes: tuple[str, ...] = ()
    """What a person should know about this combination."""

    @property
    def updates(self) -> int:
        """Optimiser updates per batch."""
        return self.epochs * self.minibatches

    @property
    def divergence_in_reward(self) -> bool:
        """Whether the divergence is part of the reward, not of the loss."""
        return self.divergence is not None and self.divergence.estimator is None

    @property
    def needs_old(self) -> bool:
        """Whether the trainer's log-probs before the first update are used."""
        return self.updates > 1 or self.correction is not None or self.divergence_in_reward

    @property
    def needs_measuring(self) -> bool:
        """Whether the batch is scored once, without gradient, before the first update."""
        return self.needs_old or self.divergence is not None or self.top_entropy is not None
