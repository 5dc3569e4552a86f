"""The names that a configuration accepts are those that exist: literal tables equal the dicts."""

from itertools import product

import pytest
import torch

from verigrad import config as tables
from verigrad.algorithms import PRESETS, Algorithm, Scores, algorithm_from
from verigrad.config import AlgorithmConfig
from verigrad.config.keys import KEYS, SECTIONS
from verigrad.policies.bundled import BUNDLED
from verigrad.tasks import TASKS

SCORES = Scores(
    rewards=torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64),
    group_index=torch.tensor([0, 0, 1, 1]),
    mask=torch.tensor([[True, True], [True, False], [True, True], [True, True]]),
)


def works(algorithm: Algorithm) -> bool:
    """Whether every function of an algorithm can be called, and gives finite numbers."""
    advantages = algorithm.advantages(SCORES)
    weights = algorithm.aggregation(SCORES.mask, SCORES.group_index)
    log_probs = torch.full((4, 2), -1.0, dtype=torch.float64)
    per_token = algorithm.loss(log_probs, log_probs, advantages.reshape(4, -1), SCORES.mask)
    return bool(advantages.isfinite().all() and (weights * per_token).isfinite().all())


def test_the_tasks_are_those_that_exist():
    assert set(tables.TASKS) == TASKS.keys()


@pytest.mark.parametrize("name", tables.TASKS)
def test_a_task_goes_by_its_own_name(name):
    assert TASKS[name]().name == name


def test_the_model_aliases_are_the_bundled_models_and_the_table():
    assert set(tables.MODELS) == {*BUNDLED, "tabular"}


def test_the_presets_are_those_that_exist():
    assert set(tables.PRESETS) == PRESETS.keys()


@pytest.mark.parametrize("preset", tables.PRESETS)
def test_a_preset_makes_an_algorithm_of_its_name(preset):
    algorithm = algorithm_from(AlgorithmConfig(preset=preset), max_new_tokens=4)
    assert algorithm.name == preset
    assert works(algorithm)


def test_every_advantage_loss_and_aggregation_goes_with_every_other():
    for advantage, loss, rule in product(tables.ADVANTAGES, tables.LOSSES, tables.AGGREGATIONS):
        parts = AlgorithmConfig(advantage=advantage, loss=loss, aggregation=rule)
        assert works(algorithm_from(parts, max_new_tokens=4)), (advantage, loss, rule)


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
    assert {f"{section}.{key}" for section, key in tables.SHORTHAND.items()} <= KEYS.keys()
    assert tables.SHORTHAND.keys() <= SECTIONS.keys()
