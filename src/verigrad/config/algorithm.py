"""The names of the algorithms' parts, and the section that chooses among them."""

from dataclasses import dataclass
from typing import Annotated, Literal

from verigrad.config.checks import OneOf, Range
from verigrad.config.fields import (
    Count,
    Fraction,
    LineText,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Section,
)

PRESETS = (
    "grpo",
    "dr_grpo",
    "rloo",
    "dapo",
    "gspo",
    "cispo",
    "scalerl",
    "lite_ppo",
    "maxrl",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "opo",
    "gmpo",
    "sapo",
    "topr",
    "dppo",
    "luspo",
    "vespo",
    "gdpo",
    "passk",
    "pkpo",
)
"""The algorithms; anything else is ``file.py:name``."""

ADVANTAGES = (
    "grpo",
    "dr_grpo",
    "rloo",
    "batch_std",
    "maxrl",
    "best_minus_second",
    "passk_analytic",
    "pkpo",
    "passk_loo",
    "opo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "gdpo",
    "sum_then_grpo",
)
LOSSES = (
    "reinforce",
    "on_policy",
    "ppo_clip",
    "cispo",
    "gspo",
    "gspo_token",
    "gmpo",
    "sapo",
    "topr",
    "dppo_tv",
    "luspo",
    "vespo",
)
NEED_NO_GROUP = ("reinforce_pp",)
"""Advantages that have a signal with one completion per problem."""

DIVERGENCES = ("k2", "k3", "k3_value_k2_gradient", "ratio_k1", "ratio_k3", "k1_in_reward")
WRONG_DIVERGENCES = ("k1", "k2_in_reward", "k3_in_reward")
"""Known, and refused with the reason."""

CORRECTIONS = (
    "token_truncated",
    "token_masked",
    "sequence_truncated",
    "sequence_masked",
    "geometric_masked",
)
AGGREGATIONS = (
    "token_mean",
    "seq_mean_token_mean",
    "seq_mean_token_mean_all",
    "seq_mean_token_sum",
    "const_norm",
    "group_token_mean",
)


Off = Literal["off"]
"""Turns a part of a preset off."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Section):
    """The objective: a preset, and the parts of it that this run replaces.

    A part that is left out is the preset's. "off" turns a part off that the preset has.
    """

    preset: LineText = "grpo"
    """The algorithm by the name people know, or ``file.py:name`` for one of your own."""

    advantage: Annotated[str, OneOf(ADVANTAGES)] | None = None
    """Rewards of groups to advantages."""

    advantage_eps: NonNegativeFloat | None = None
    """Added to the deviation that divides the advantage."""

    pass_k: PositiveInt | None = None
    """The k of pass@k, for the advantages that have one."""

    loss: Annotated[str, OneOf(LOSSES)] | None = None
    """Loss per token."""

    clip_low: Fraction | None = None
    """The ratio is clipped below 1 - clip_low; for gmpo and dppo_tv the distance from 0."""

    clip_high: NonNegativeFloat | None = None
    """The ratio is clipped above 1 + clip_high; for gmpo and dppo_tv the distance from 0."""

    dual_clip: Annotated[float, Range(low=1, above=True)] | Off | None = None
    """Bounds the loss of a negative advantage at this many times the advantage."""

    delta: Annotated[float, Range(low=1, above=True)] | Off | None = None
    """Bounds the ratio of the unclipped branch."""

    aggregation: Annotated[str, OneOf(AGGREGATIONS)] | None = None
    """The rule that gives each token its weight."""

    kl: Annotated[str, OneOf((*DIVERGENCES, *WRONG_DIVERGENCES, "off"))] | None = None
    """The divergence term that holds the policy to a reference."""

    kl_beta: NonNegativeFloat | None = None
    """Its weight."""

    kl_reset_every: PositiveInt | Off | None = None
    """After so many steps the reference becomes the current policy."""

    reference: LineText | None = None
    """The reference: a model's alias, folder or hub id, or "start" for the starting weights."""

    correction: Annotated[str, OneOf((*CORRECTIONS, "off"))] | None = None
    """Weights for completions that another policy sampled."""

    correction_low: NonNegativeFloat | None = None
    """Ratios below it are masked."""

    correction_high: PositiveFloat | None = None
    """Ratios above it are masked."""

    correction_cap: PositiveFloat | None = None
    """Ratios above it are cut to it."""

    off_policy_delta: NonNegativeFloat | Off | None = None
    """Drops lost completions that the policy has left by more than this, in nats per token."""

    entropy_coefficient: NonNegativeFloat | None = None
    """Weight of the entropy bonus."""

    entropy_target: NonNegativeFloat | Off | None = None
    """Entropy in nats that the weight of the bonus is steered towards."""

    entropy_step: PositiveFloat | None = None
    """How much the steered weight changes per step."""

    top_entropy: Annotated[float, Range(low=0, high=1, above=True)] | Off | None = None
    """Share of the tokens, those of highest entropy, that have a policy loss."""

    counts_no_signal: bool | None = None
    """Whether tokens of groups without signal stay in the denominators."""

    mask_truncated: bool | None = None
    """Whether completions that reached the length limit are left out of the loss."""

    overlong_share: Annotated[float, Range(low=0, high=1, above=True)] | Off | None = None
    """Share of max_new_tokens, the last one, over which length is punished up to -1."""

    epochs: PositiveInt | None = None
    """How many times each batch is gone through."""

    minibatches: PositiveInt | None = None
    """Optimiser updates per epoch."""

    max_staleness: Count | Off | None = None
    """Completions sampled more updates ago than this are left out."""
