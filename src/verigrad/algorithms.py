"""An algorithm is a value that holds its functions; a preset is one that people know by name.

The table ``PRESETS`` says what each contains. A configuration may replace any part by name
(:func:`algorithm_from`), and a user may build an :class:`Algorithm` from functions of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from verigrad.config import AlgorithmConfig
from verigrad.core import advantages, aggregation, losses


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What an advantage function sees of a step.

    Example: two groups of two, the second row of the first group one token long:
        rewards [1, 0, 0, 0], group_index [0, 0, 1, 1], mask [[1, 1], [1, 0], [1, 1], [1, 1]]
    """

    rewards: Tensor
    """``[B]`` float64, of scored rollouts only."""

    group_index: Tensor
    """``[B]`` int64, which group each row belongs to."""

    mask: Tensor
    """``[B, T]`` bool, true on tokens that train."""


AdvantageFunction = Callable[[Scores], Tensor]
"""Gives ``[B]`` (one advantage per completion) or ``[B, T]`` (one per token), float64."""

LossFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""``(log_probs, old_log_probs, advantages, mask)`` to loss per token, each ``[B, T]``."""

AggregationFunction = Callable[[Tensor, Tensor], Tensor]
"""``(mask [B, T], group_index [B])`` to weights ``[B, T]``."""


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

    clipped: LossFunction | None = None
    """Where the loss has no gradient because of its bounds, for the metric; None if it has none."""

    counts_no_signal: bool = True
    """Whether groups without signal stay in the denominators of the aggregation."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The parts of a preset by name, each of which a configuration may replace."""

    advantage: str
    loss: str
    aggregation: str
    advantage_eps: float = 1e-6
    clip_low: float = 0.2
    clip_high: float = 0.2


PRESETS: dict[str, Recipe] = {
    # DeepSeekMath 2402.03300, without its KL term (beta 0.04 there).
    "grpo": Recipe(advantage="grpo", loss="ppo_clip", aggregation="seq_mean_token_mean"),
    # 2503.20783: no division by the deviation, a constant denominator.
    "dr_grpo": Recipe(advantage="dr_grpo", loss="ppo_clip", aggregation="const_norm"),
    # 2402.14740: the unbiased policy gradient with a leave-one-out baseline.
    "rloo": Recipe(advantage="rloo", loss="reinforce", aggregation="seq_mean_token_sum"),
}


def algorithm_from(config: AlgorithmConfig, *, max_new_tokens: int) -> Algorithm:
    """Build the algorithm that a configuration names.

    Args:
        config: a preset, and the parts that replace the preset's.
        max_new_tokens: the constant length of the ``const_norm`` rule.
    """
    parts = ("advantage", "loss", "aggregation", "advantage_eps", "clip_low", "clip_high")
    changes = {part: getattr(config, part) for part in parts if getattr(config, part) is not None}
    recipe = replace(PRESETS[config.preset], **changes)
    low, high = recipe.clip_low, recipe.clip_high
    clips = recipe.loss == "ppo_clip"
    return Algorithm(
        name=config.preset if not changes else f"{config.preset} with {', '.join(changes)}",
        advantages=_advantages(recipe),
        loss=partial(losses.ppo_clip, clip_low=low, clip_high=high) if clips else losses.reinforce,
        clipped=partial(losses.clipped_tokens, clip_low=low, clip_high=high) if clips else None,
        aggregation=_aggregations(max_new_tokens)[recipe.aggregation],
    )


def _advantages(recipe: Recipe) -> AdvantageFunction:
    functions: dict[str, AdvantageFunction] = {
        "grpo": lambda s: advantages.grpo(s.rewards, s.group_index, eps=recipe.advantage_eps),
        "dr_grpo": lambda s: advantages.dr_grpo(s.rewards, s.group_index),
        "rloo": lambda s: advantages.rloo(s.rewards, s.group_index),
    }
    return functions[recipe.advantage]


def _aggregations(max_new_tokens: int) -> dict[str, AggregationFunction]:
    return {
        "token_mean": aggregation.token_mean,
        "seq_mean_token_mean": aggregation.seq_mean_token_mean,
        "seq_mean_token_mean_all": aggregation.seq_mean_token_mean_all,
        "seq_mean_token_sum": aggregation.seq_mean_token_sum,
        "const_norm": partial(aggregation.const_norm, length=max_new_tokens),
        "group_token_mean": aggregation.group_token_mean,
    }
