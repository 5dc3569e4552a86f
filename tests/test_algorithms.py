"""The presets, and the parts of them that a configuration replaces."""

import pytest
import torch
from builders import make_algorithm
from golden import tensor

from verigrad.algorithms import PRESETS, Recipe, Scores

SCORES = Scores(
    rewards=tensor([1.0, 0.0, 0.0]),
    group_index=torch.tensor([0, 0, 0]),
    mask=torch.tensor([[True, True], [True, False], [True, True]]),
)


def test_what_each_preset_holds() -> None:
    expected = {
        "grpo": Recipe(
            advantage="grpo",
            loss="ppo_clip",
            aggregation="seq_mean_token_mean",
            advantage_eps=1e-6,
            clip_low=0.2,
            clip_high=0.2,
        ),
        "dr_grpo": Recipe(advantage="dr_grpo", loss="ppo_clip", aggregation="const_norm"),
        "rloo": Recipe(advantage="rloo", loss="reinforce", aggregation="seq_mean_token_sum"),
    }
    assert expected == PRESETS


def test_a_part_that_is_replaced_leaves_the_others_as_they_were() -> None:
    algorithm = make_algorithm("dr_grpo", aggregation="token_mean", clip_high=0.5)
    assert algorithm.name == "dr_grpo with aggregation, clip_high"
    assert algorithm.advantages(SCORES).tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert algorithm.aggregation(SCORES.mask, SCORES.group_index)[0, 0] == 1 / 5
    ratios = tensor([[1.4, 1.6, 0.7]])
    zeros, ones = torch.zeros(1, 3), torch.ones(1, 3)
    assert algorithm.clipped is not None
    everywhere = ones.bool()
    assert algorithm.clipped(ratios.log(), zeros, ones, everywhere).tolist() == [
        [False, True, False]
    ]
    assert algorithm.clipped(ratios.log(), zeros, -ones, everywhere).tolist() == [
        [False, False, True]
    ]


def test_a_preset_as_it_is_goes_by_its_own_name() -> None:
    assert make_algorithm("rloo").name == "rloo"


def test_the_constant_length_is_the_longest_completion_of_the_configuration() -> None:
    weights = make_algorithm("dr_grpo", max_new_tokens=16).aggregation(
        SCORES.mask, SCORES.group_index
    )
    assert weights[0, 0] == 1 / (3 * 16)


def test_a_loss_without_bounds_clips_nothing() -> None:
    assert make_algorithm(loss="reinforce").clipped is None


def test_an_epsilon_of_zero_is_an_epsilon_and_not_its_absence() -> None:
    values = make_algorithm("grpo", advantage_eps=0.0).advantages(SCORES)
    assert values.tolist() == pytest.approx([2 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5], abs=1e-15)
