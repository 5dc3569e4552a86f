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


def test_what_the_oldest_presets_hold() -> None:
    bounds = {"clip_low": 0.2, "clip_high": 0.2}
    mean = "seq_mean_token_mean"
    assert PRESETS["grpo"] == Recipe(advantage="grpo", loss="ppo_clip", aggregation=mean, **bounds)
    assert PRESETS["dr_grpo"] == Recipe(
        advantage="dr_grpo", loss="ppo_clip", aggregation="const_norm", **bounds
    )
    assert PRESETS["rloo"] == Recipe(
        advantage="rloo", loss="reinforce", aggregation="seq_mean_token_sum"
    )
    assert PRESETS["dapo"] == Recipe(
        advantage="grpo",
        loss="ppo_clip",
        clip_low=0.2,
        clip_high=0.28,
        aggregation="token_mean",
        counts_no_signal=False,
        overlong_share=0.2,
    )
    assert PRESETS["gspo"] == Recipe(
        advantage="grpo",
        loss="gspo",
        clip_low=3e-4,
        clip_high=4e-4,
        aggregation=mean,
        minibatches=4,
    )


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_corrects_a_sampler_that_is_the_trainer_or_has_a_reference(name: str) -> None:
    algorithm = make_algorithm(name)
    assert algorithm.correction is None
    assert algorithm.divergence is None
    assert algorithm.notes == ()


def test_a_part_that_is_replaced_leaves_the_others_as_they_were() -> None:
    algorithm = make_algorithm("dr_grpo", aggregation="token_mean", clip_high=0.5)
    assert algorithm.name == "dr_grpo with clip_high, aggregation"
    assert algorithm.advantages(SCORES).tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert algorithm.aggregation(SCORES.mask, SCORES.group_index)[0, 0] == 1 / 5
    ratios = tensor([[1.4, 1.6, 0.7]])
    found = []
    for advantage in (1.0, -1.0):
        new = ratios.log().requires_grad_()
        everywhere = torch.ones(1, 3, dtype=torch.bool)
        loss = algorithm.loss(new, torch.zeros(1, 3), torch.full((1, 3), advantage), everywhere)
        (gradient,) = torch.autograd.grad(loss.sum(), new)
        found.append((gradient == 0).tolist())
    assert found == [[[False, True, False]], [[False, False, True]]]


def test_a_preset_as_it_is_goes_by_its_own_name() -> None:
    assert make_algorithm("rloo").name == "rloo"


def test_the_constant_length_is_the_longest_completion_of_the_configuration() -> None:
    weights = make_algorithm("dr_grpo", max_new_tokens=16).aggregation(
        SCORES.mask, SCORES.group_index
    )
    assert weights[0, 0] == 1 / (3 * 16)


def test_an_epsilon_of_zero_is_an_epsilon_and_not_its_absence() -> None:
    values = make_algorithm("grpo", advantage_eps=0.0).advantages(SCORES)
    assert values.tolist() == pytest.approx([2 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5], abs=1e-15)
