"""From a configuration to an algorithm: names to functions, with their numbers bound."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from verigrad.algorithms.algorithm import (
    AdvantageFunction,
    AggregationFunction,
    Algorithm,
    CorrectionFunction,
    Divergence,
    DivergenceFunction,
    EntropyBonus,
    LossFunction,
    Scores,
)
from verigrad.algorithms.own import own_algorithm
from verigrad.algorithms.presets import PRESETS, Recipe
from verigrad.algorithms.rules import BY_PART, PASS_AT_K, notes_on, refuse_wrong
from verigrad.config import AlgorithmConfig
from verigrad.core import advantages, aggregation, corrections, kl, losses, pass_at_k, shaping
from verigrad.errors import ConfigError


def algorithm_from(config: AlgorithmConfig, *, max_new_tokens: int) -> Algorithm:
    """Build the algorithm that a configuration names.

    Args:
        config: a preset, and the parts that replace the preset's ("off" turns a part off); or
            ``file.py:name`` for an algorithm of the user's own, whose parts are its own.
        max_new_tokens: the longest completion: the constant of ``const_norm``, and where the
            punishment for length ends.

    Raises:
        ConfigError: the combination is known to be wrong, or a file's algorithm cannot be loaded.
    """
    changes = {
        part.name: getattr(config, part.name)
        for part in fields(Recipe)
        if getattr(config, part.name) is not None
    }
    if config.preset not in PRESETS:
        return own_algorithm(config.preset, changes)
    recipe = replace(PRESETS[config.preset], **{k: _or_none(v) for k, v in changes.items()})
    refuse_wrong(recipe)
    return Algorithm(
        name=config.preset if not changes else f"{config.preset} with {', '.join(changes)}",
        advantages=ADVANTAGES[recipe.advantage](recipe),
        loss=_loss(recipe),
        aggregation=AGGREGATIONS[recipe.aggregation](max_new_tokens),
        divergence=_divergence(recipe),
        correction=_correction(recipe),
        off_policy_delta=recipe.off_policy_delta,
        entropy=_entropy(recipe),
        top_entropy=recipe.top_entropy,
        counts_no_signal=recipe.counts_no_signal,
        mask_truncated=recipe.mask_truncated,
        punish_length=_punishment(recipe, max_new_tokens),
        epochs=recipe.epochs,
        minibatches=recipe.minibatches,
        max_staleness=recipe.max_staleness,
        by_part=recipe.advantage in BY_PART,
        # One completion alone has nothing to be compared with, whatever k is.
        smallest_group=max(2, recipe.pass_k or 1) if recipe.advantage in PASS_AT_K else 1,
        notes=(
            *notes_on(recipe, changes),
            *_kept(recipe, PRESETS[config.preset], changes),
            *_idle(recipe, changes),
        ),
    )


def _kept(recipe: Recipe, preset: Recipe, changes: Mapping[str, Any]) -> list[str]:
    """A note on bounds that a preset has for its own loss, and that another one is left with."""
    if recipe.loss == preset.loss or preset.clip_high is None or "clip_high" in changes:
        return []
    if "clip_high" not in BOUNDS.get(recipe.loss, {}):
        return []
    return [
        f"clip_low and clip_high stay {recipe.clip_low} and {recipe.clip_high}, which the preset "
        f"has for loss {preset.loss!r}; for {recipe.loss!r} set them too, to what it usually has"
    ]


def _idle(recipe: Recipe, changes: Mapping[str, Any]) -> list[str]:
    """A note on the changes that no part of the algorithm asks for."""
    correction = CORRECTION_NUMBERS[recipe.correction] if recipe.correction else ()
    bounds = BOUNDS.get(recipe.loss, {})
    asked = {
        "advantage_eps": recipe.advantage in WITH_EPS,
        "pass_k": recipe.advantage in PASS_AT_K,
        "clip_low": "clip_low" in bounds,
        "clip_high": "clip_high" in bounds,
        "kl_reset_every": recipe.kl is not None,
        "reference": recipe.kl is not None,
        "entropy_step": recipe.entropy_target is not None,
    } | {f"correction_{number}": number in correction for number in ("low", "high", "cap")}
    idle = [key for key in changes if not asked.get(key, True) and changes[key] != "off"]
    return [f"no part of this algorithm uses {', '.join(idle)}"] if idle else []


def _or_none(value: Any) -> Any:
    return None if value == "off" else value


def _centred(
    function: Callable[..., Tensor], *numbers: str
) -> Callable[[Recipe], AdvantageFunction]:
    """An estimator of rewards and groups, with some of the recipe's numbers bound."""
    keys = {"eps": "advantage_eps", "k": "pass_k"}

    def bind(recipe: Recipe) -> AdvantageFunction:
        bound = {number: getattr(recipe, keys[number]) for number in numbers}
        return lambda s: function(s.rewards, s.group_index, **bound)

    return bind


def _by_component(
    function: Callable[..., Tensor],
) -> Callable[[Recipe], AdvantageFunction]:
    """An estimator of several rewards; a reward without named parts is its own only part."""

    def bind(recipe: Recipe) -> AdvantageFunction:
        def advantages_of(s: Scores) -> Tensor:
            components, weights = s.components, s.component_weights
            if components is None or weights is None:
                components, weights = s.rewards.unsqueeze(1), torch.ones(1, dtype=torch.float64)
            return function(components, s.group_index, weights, eps=recipe.advantage_eps)

        return advantages_of

    return bind


def _reinforce_pp(recipe: Recipe) -> AdvantageFunction:
    """A divergence that is in the reward is subtracted token by token, what is still to come."""
    beta = recipe.kl_beta if recipe.kl == "k1_in_reward" else 0.0
    return lambda s: advantages.reinforce_pp(s.rewards, s.mask, s.kl, beta=beta)


ADVANTAGES: dict[str, Callable[[Recipe], AdvantageFunction]] = {
    "grpo": _centred(advantages.grpo, "eps"),
    "dr_grpo": _centred(advantages.dr_grpo),
    "rloo": _centred(advantages.rloo),
    "batch_std": _centred(advantages.batch_std, "eps"),
    "maxrl": _centred(advantages.maxrl),
    "best_minus_second": _centred(pass_at_k.best_minus_second),
    "passk_analytic": _centred(pass_at_k.passk_analytic, "k", "eps"),
    "pkpo": _centred(pass_at_k.pkpo, "k"),
    "passk_loo": _centred(pass_at_k.passk_loo, "k"),
    "opo": lambda recipe: lambda s: advantages.opo(s.rewards, s.group_index, s.mask),
    "reinforce_pp": _reinforce_pp,
    "reinforce_pp_baseline": lambda recipe: (
        lambda s: advantages.reinforce_pp_baseline(s.rewards, s.group_index, s.mask)
    ),
    "gdpo": _by_component(advantages.gdpo),
    "sum_then_grpo": _by_component(advantages.sum_then_grpo),
}

LOSSES: dict[str, LossFunction] = {
    "reinforce": losses.reinforce,
    "on_policy": losses.on_policy,
    "ppo_clip": losses.ppo_clip,
    "cispo": losses.cispo,
    "gspo": losses.gspo,
    "gspo_token": losses.gspo_token,
    "gmpo": losses.gmpo,
    "sapo": losses.sapo,
    "topr": losses.topr,
    "dppo_tv": losses.dppo_tv,
    "luspo": losses.luspo,
    "vespo": losses.vespo,
}

WITH_EPS = ("grpo", "batch_std", "passk_analytic", "gdpo", "sum_then_grpo")
"""The advantages that ``advantage_eps`` is added in."""

AGGREGATIONS: dict[str, Callable[[int], AggregationFunction]] = {
    "token_mean": lambda length: aggregation.token_mean,
    "seq_mean_token_mean": lambda length: aggregation.seq_mean_token_mean,
    "seq_mean_token_mean_all": lambda length: aggregation.seq_mean_token_mean_all,
    "seq_mean_token_sum": lambda length: aggregation.seq_mean_token_sum,
    "const_norm": lambda length: partial(aggregation.const_norm, length=length),
    "group_token_mean": lambda length: aggregation.group_token_mean,
}

DIVERGENCES: dict[str, DivergenceFunction | None] = {
    "k2": kl.k2,
    "k3": kl.k3,
    "k3_value_k2_gradient": kl.k3_value_k2_gradient,
    "ratio_k1": kl.ratio_k1,
    "ratio_k3": kl.ratio_k3,
    "k1_in_reward": None,
}

CORRECTIONS: dict[str, CorrectionFunction] = {
    "token_truncated": corrections.token_truncated,
    "token_masked": corrections.token_masked,
    "sequence_truncated": corrections.sequence_truncated,
    "sequence_masked": corrections.sequence_masked,
    "geometric_masked": corrections.geometric_masked,
}

CORRECTION_NUMBERS = {
    "token_truncated": ("cap",),
    "token_masked": ("low", "high"),
    "sequence_truncated": ("cap",),
    "sequence_masked": ("low", "high"),
    "geometric_masked": ("low", "high", "cap"),
}


BOUNDS = {
    "ppo_clip": {
        "clip_low": "clip_low",
        "clip_high": "clip_high",
        "dual_clip": "dual_clip",
        "delta": "delta",
    },
    "dppo_tv": {"clip_low": "tv_low", "clip_high": "tv_high"},
} | {
    name: {"clip_low": "clip_low", "clip_high": "clip_high"}
    for name in ("cispo", "gspo", "gspo_token", "gmpo", "luspo")
}
"""The keys that bound each loss, and the loss's own names for them."""


def _loss(recipe: Recipe) -> LossFunction:
    """The loss with the recipe's bounds; where it has none, the loss's own defaults."""
    given = {
        own: value
        for key, own in BOUNDS.get(recipe.loss, {}).items()
        if (value := getattr(recipe, key)) is not None
    }
    return partial(LOSSES[recipe.loss], **given) if given else LOSSES[recipe.loss]


def _divergence(recipe: Recipe) -> Divergence | None:
    if recipe.kl is None:
        return None
    estimator = DIVERGENCES[recipe.kl]
    return Divergence(
        beta=recipe.kl_beta,
        estimator=estimator,
        per_token=estimator is None and recipe.advantage == "reinforce_pp",
        reference=recipe.reference,
        reset_every=recipe.kl_reset_every,
    )


def _correction(recipe: Recipe) -> CorrectionFunction | None:
    if recipe.correction is None:
        return None
    numbers = {
        number: value
        for number in CORRECTION_NUMBERS[recipe.correction]
        if (value := getattr(recipe, f"correction_{number}")) is not None
    }
    function = partial(CORRECTIONS[recipe.correction], **numbers)
    known = signature(function).parameters
    if "low" in known and known["low"].default > known["high"].default:
        raise ConfigError(
            f"algorithm: correction_low is {known['low'].default:g} and correction_high "
            f"{known['high'].default:g}, so that every ratio would be masked and nothing train; "
            "set the first below the second"
        )
    return function


def _entropy(recipe: Recipe) -> EntropyBonus | None:
    if recipe.entropy_coefficient == 0 and recipe.entropy_target is None:
        return None
    return EntropyBonus(
        coefficient=recipe.entropy_coefficient,
        target=recipe.entropy_target,
        step=recipe.entropy_step,
    )


def _punishment(recipe: Recipe, longest: int) -> Callable[[Tensor], Tensor] | None:
    if recipe.overlong_share is None:
        return None
    cache = max(1, round(recipe.overlong_share * longest))
    return partial(shaping.soft_overlong, longest=longest, cache=cache)
