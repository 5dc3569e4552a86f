"""The names that a configuration accepts are those that exist: literal tables equal the dicts."""

from dataclasses import fields
from itertools import product

import pytest
import torch
from builders import allowed_objectives

from verigrad.algorithms import PRESETS, Algorithm, Recipe, Scores, algorithm_from, build
from verigrad.algorithms.rules import ROW_MEANS, SEQUENCE_LOSSES
from verigrad.config import MODELS, SHORTHAND, AlgorithmConfig, schema
from verigrad.config import algorithm as tables
from verigrad.config.keys import KEYS, SECTIONS
from verigrad.policies.bundled import BUNDLED
from verigrad.tasks import TASKS

SCORES = Scores(
    rewards=torch.tensor([1.0, 0.0, 0.0, 1.0] * 2, dtype=torch.float64),
    group_index=torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]),
    mask=torch.tensor([[True, True], [True, False], [True, True], [True, True]] * 2),
)
"""Two groups of four, which is as many as the presets' pass@4 needs."""


def works(algorithm: Algorithm) -> bool:
    """Whether every function of an algorithm can be called, and gives finite numbers."""
    advantages = algorithm.advantages(SCORES)
    weights = algorithm.aggregation(SCORES.mask, SCORES.group_index)
    log_probs = torch.full((8, 2), -1.0, dtype=torch.float64)
    per_token = algorithm.loss(log_probs, log_probs, advantages.reshape(8, -1), SCORES.mask)
    return bool(advantages.isfinite().all() and (weights * per_token).isfinite().all())


def test_the_tasks_are_those_that_exist():
    assert set(schema.TASKS) == TASKS.keys()


@pytest.mark.parametrize("name", schema.TASKS)
def test_a_task_goes_by_its_own_name(name):
    assert TASKS[name]().name == name


def test_the_model_aliases_are_the_bundled_models_and_the_table():
    assert set(MODELS) == {*BUNDLED, "tabular"}


def test_the_presets_are_those_that_exist():
    assert set(tables.PRESETS) == PRESETS.keys()


@pytest.mark.parametrize("preset", tables.PRESETS)
def test_a_preset_makes_an_algorithm_of_its_name(preset):
    algorithm = algorithm_from(AlgorithmConfig(preset=preset), max_new_tokens=4)
    assert algorithm.name == preset
    assert works(algorithm)


def test_every_advantage_loss_and_aggregation_that_is_allowed_works():
    for parts in allowed_objectives(pass_k=2):
        config = AlgorithmConfig(preset="rloo", **parts)
        assert works(algorithm_from(config, max_new_tokens=4)), parts


def test_what_is_not_allowed_is_a_loss_per_row_under_another_weighting_than_that_of_rows():
    allowed = [tuple(parts.values())[:3] for parts in allowed_objectives(pass_k=2)]
    every = set(product(tables.ADVANTAGES, tables.LOSSES, tables.AGGREGATIONS))
    assert {(loss, rule) for _, loss, rule in every - set(allowed)} == set(
        product(SEQUENCE_LOSSES, set(tables.AGGREGATIONS) - set(ROW_MEANS))
    )


def test_the_parts_that_a_configuration_names_are_those_that_exist():
    assert set(tables.ADVANTAGES) == build.ADVANTAGES.keys()
    assert set(tables.LOSSES) == build.LOSSES.keys()
    assert set(tables.AGGREGATIONS) == build.AGGREGATIONS.keys()
    assert set(tables.DIVERGENCES) == build.DIVERGENCES.keys()
    assert set(tables.CORRECTIONS) == build.CORRECTIONS.keys() == build.CORRECTION_NUMBERS.keys()


def test_every_part_of_a_recipe_is_a_key_of_a_configuration():
    keys = {field.name for field in fields(AlgorithmConfig)}
    assert keys == {"preset", *(field.name for field in fields(Recipe))}


def test_every_name_in_a_preset_is_one_that_a_configuration_accepts():
    for recipe in PRESETS.values():
        assert recipe.advantage in tables.ADVANTAGES
        assert recipe.loss in tables.LOSSES
        assert recipe.aggregation in tables.AGGREGATIONS


def test_a_replaced_part_shows_in_the_name():
    config = AlgorithmConfig(preset="rloo", loss="ppo_clip", clip_high=0.3)
    name = algorithm_from(config, max_new_tokens=4).name
    assert name == "rloo with loss, clip_high"


def test_a_shorthand_is_a_key_of_its_section():
    assert {f"{section}.{key}" for section, key in SHORTHAND.items()} <= KEYS.keys()
    assert SHORTHAND.keys() <= SECTIONS.keys()
