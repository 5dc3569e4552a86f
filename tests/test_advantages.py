"""Rewards of groups to advantages."""

from inspect import signature
from itertools import pairwise
from typing import Any

import pytest
import torch
from builders import make_algorithm, reward_for
from golden import assert_close, cases, tensor
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from verigrad.algorithms import Scores
from verigrad.algorithms.rules import PASS_AT_K
from verigrad.config.algorithm import ADVANTAGES
from verigrad.core import advantages, pass_at_k

ANY_REWARD = st.floats(-1e3, 1e3, allow_subnormal=False)

NOT_CENTRED = ("pkpo", "passk_loo")
"""Estimators of the gradient of pass@k that subtract no mean."""

OVER_THE_STEP = ("batch_std", "reinforce_pp", "reinforce_pp_baseline", "gdpo")
"""Estimators whose scale, or whose baseline too, is that of the whole step."""

NO_SUM_OF_ZERO = (*NOT_CENTRED, "best_minus_second", "reinforce_pp")
"""Only the best has an advantage, or the baseline is the step's."""

NO_ORDER = ("best_minus_second",)
"""All but the best are alike."""


def all_but(*names: str) -> pytest.MarkDecorator:
    """Every estimator that a configuration can name, some left out."""
    return pytest.mark.parametrize("name", [name for name in ADVANTAGES if name not in names])


def allowed(name: str, rewards: Tensor) -> Tensor:
    """Rewards that the estimator takes."""
    return tensor([reward_for(name, reward) for reward in rewards.tolist()])


def estimate(name: str, rewards: Tensor, group_index: Tensor) -> Tensor:
    """The advantages ``[B]`` of an estimator under the name that a configuration gives it."""
    scores = Scores(
        rewards=rewards,
        group_index=group_index,
        mask=torch.ones(len(rewards), 1, dtype=torch.bool),
    )
    return make_algorithm(advantage=name, pass_k=1).advantages(scores).reshape(-1)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    """Rewards and group indices of up to four groups of up to six rows, in any order."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    index = draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)]))
    return draw(st.lists(ANY_REWARD, min_size=len(index), max_size=len(index))), index


def golden_advantages(inputs: dict[str, Any], rewards: Tensor, group_index: Tensor) -> Tensor:
    """What the library's function of that name gives, with the numbers of the case it takes."""
    name = inputs["estimator"]
    function = getattr(pass_at_k if hasattr(pass_at_k, name) else advantages, name)
    takes = signature(function).parameters
    given = {key: inputs[key] for key in ("eps", "ddof", "k", "beta") if key in inputs}
    given |= {"group_index": group_index, "mask": torch.tensor(inputs.get("mask", [[1]])).bool()}
    if "lengths" in inputs:
        lengths = torch.tensor(inputs["lengths"])
        given["mask"] = torch.arange(max(1, int(lengths.max()))) < lengths.unsqueeze(1)
    given |= {key: tensor(inputs[key]) for key in ("weights",) if key in inputs}
    given |= {"kl": tensor(inputs["kl_k1"])} if "kl_k1" in inputs else {}
    result: Tensor = function(rewards, **{key: given[key] for key in given if key in takes})
    return result


@pytest.mark.parametrize(("inputs", "expected"), cases("advantage"))
def test_golden_advantages(inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    rewards, group_index = tensor(inputs["rewards"]), torch.tensor(inputs["group_ids"])
    valid = torch.tensor(inputs.get("valid", [1] * len(rewards))).bool()
    if "error" in expected:
        with pytest.raises(ValueError, match=f"^{expected['error']}"):
            golden_advantages(inputs, rewards, group_index)
        return
    some = golden_advantages(inputs, rewards[valid], group_index[valid])
    actual = torch.zeros(tensor(expected["advantages"]).shape, dtype=torch.float64)
    actual[valid] = some
    assert_close(actual, expected["advantages"])
    exact = tensor(expected["advantages"]) == 0
    if exact.all():
        assert not actual.any(), "without signal the advantages are exactly 0"


@all_but(*NOT_CENTRED)
@given(reward=st.floats(-1e6, 1e6), size=st.integers(1, 8))
def test_equal_rewards_give_exactly_zero(name: str, reward: float, size: int) -> None:
    rewards = allowed(name, torch.full((size,), reward, dtype=torch.float64))
    assert not estimate(name, rewards, torch.zeros(size, dtype=torch.int64)).any()


@pytest.mark.parametrize("name", NOT_CENTRED)
def test_all_wrong_teaches_nothing_even_without_a_baseline(name: str) -> None:
    rewards = torch.zeros(4, dtype=torch.float64)
    assert not estimate(name, rewards, torch.zeros(4, dtype=torch.int64)).any()


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 0.95])
def test_equal_rewards_give_exactly_zero_without_an_epsilon_too(reward: float, size: int) -> None:
    rewards = torch.full((size,), reward, dtype=torch.float64)
    index = torch.zeros(size, dtype=torch.int64)
    assert advantages.grpo(rewards, index, eps=0.0).tolist() == [0.0] * size


@all_but(*NO_SUM_OF_ZERO)
@given(groups())
def test_advantages_of_a_group_sum_to_zero(name: str, drawn: tuple[list[float], list[int]]) -> None:
    rewards, index = allowed(name, tensor(drawn[0])), torch.tensor(drawn[1])
    values = estimate(name, rewards, index)
    sums = torch.zeros(4, dtype=torch.float64).index_add(0, index, values)
    assert sums.abs().max() <= 1e-12 * max(1.0, *rewards.abs().tolist(), *values.abs().tolist())


@given(groups())
def test_whitened_advantages_have_mean_zero_and_deviation_one_over_the_step(
    drawn: tuple[list[float], list[int]],
) -> None:
    rewards, index = tensor(drawn[0]), torch.tensor(drawn[1])
    values = estimate("reinforce_pp", rewards, index)
    assert values.mean().abs() <= 1e-9
    if rewards.std(correction=0) > 1e-3:
        assert values.square().mean().item() == pytest.approx(1, abs=1e-9)


def test_only_the_best_of_a_group_has_an_advantage_over_the_second() -> None:
    values = estimate("best_minus_second", tensor([0.25, 1.0, 0.75]), torch.tensor([0, 0, 0]))
    assert values.tolist() == [0, 0.25, 0]


@pytest.mark.parametrize("name", ADVANTAGES)
@given(groups(), st.randoms(use_true_random=False))
def test_a_row_keeps_its_advantage_in_any_order(
    name: str, drawn: tuple[list[float], list[int]], random: Any
) -> None:
    rewards, index = allowed(name, tensor(drawn[0])), torch.tensor(drawn[1])
    order = list(range(len(index)))
    random.shuffle(order)
    expected = estimate(name, rewards, index)[order]
    actual = estimate(name, rewards[order], index[order])
    assert torch.allclose(actual, expected, rtol=1e-9, atol=1e-9)


@all_but(*OVER_THE_STEP)
def test_one_group_does_not_move_another(name: str) -> None:
    rewards = allowed(name, tensor([1.0, 0.0, 0.5, 900.0, -7.0]))
    alone = estimate(name, rewards[:3], torch.tensor([0, 0, 0]))
    beside = estimate(name, rewards, torch.tensor([0, 0, 0, 1, 1]))
    assert torch.equal(beside[:3], alone)


@pytest.mark.parametrize("name", OVER_THE_STEP)
def test_where_the_scale_is_the_steps_another_group_moves_it(name: str) -> None:
    alone = estimate(name, tensor([1.0, 0.0, 0.5]), torch.tensor([0, 0, 0]))
    beside = estimate(name, tensor([1.0, 0.0, 0.5, 9.0, -7.0]), torch.tensor([0, 0, 0, 1, 1]))
    assert not torch.allclose(beside[:3], alone, rtol=0.01)


@all_but(*NO_ORDER)
@given(st.lists(ANY_REWARD, min_size=2, max_size=6, unique=True))
def test_a_better_reward_has_a_better_advantage(name: str, rewards: list[float]) -> None:
    ordered = allowed(name, tensor([round(reward, 3) for reward in rewards])).sort().values
    values = estimate(name, ordered, torch.zeros(len(rewards), dtype=torch.int64)).tolist()
    pairs = zip(pairwise(ordered.tolist()), pairwise(values), strict=True)
    for (low, high), (worse, better) in pairs:
        assert (better > worse) == (high > low)


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    rewards = tensor([3.0, 1.0, 2.0])
    actual = advantages.rloo(rewards, torch.tensor([0, 0, 0]))
    assert actual.tolist() == pytest.approx([3 - 1.5, 1 - 2.5, 2 - 2.0], abs=1e-15)


def test_grpo_of_two_gives_one_over_root_two_whatever_the_rewards() -> None:
    actual = advantages.grpo(tensor([0.9, 0.2]), torch.tensor([0, 0]), eps=0.0)
    assert actual.tolist() == pytest.approx([2**-0.5, -(2**-0.5)], abs=1e-15)


@all_but(*PASS_AT_K)
def test_a_small_but_real_difference_is_a_signal(name: str) -> None:
    actual = estimate(name, tensor([0.5, 0.5 + 1e-6]), torch.tensor([0, 0]))
    assert actual[1] > 0


@pytest.mark.parametrize("name", ADVANTAGES)
def test_float32_rewards_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"rewards are torch\.float32; .* from float64"):
        estimate(name, torch.tensor([1.0, 0.0]), torch.tensor([0, 0]))


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("bad", ["Infinity", "-Infinity", "NaN"])
def test_a_reward_that_is_not_finite_is_named_by_its_row(name: str, bad: str) -> None:
    with pytest.raises(ValueError, match=rf"row 2 has reward {float(bad)}"):
        estimate(name, tensor([1.0, 0.0, bad]), torch.tensor([0, 0, 0]))


@pytest.mark.parametrize("name", ["gdpo", "sum_then_grpo"])
def test_a_reward_without_parts_is_its_own_only_part(name: str) -> None:
    rewards, index = tensor([1.0, 0.0, 0.5, 0.0]), torch.tensor([0, 0, 1, 1])
    scores = Scores(
        rewards=rewards,
        group_index=index,
        mask=torch.ones(4, 1, dtype=torch.bool),
        components=rewards.unsqueeze(1),
        component_weights=tensor([1.0]),
    )
    parted = make_algorithm(advantage=name).advantages(scores)
    assert torch.equal(estimate(name, rewards, index), parted)


def test_a_step_of_equal_rewards_is_not_divided_by_nothing() -> None:
    rewards, index = tensor([0.1, 0.1, 1 / 3, 1 / 3]), torch.tensor([0, 0, 1, 1])
    for name in ("grpo", "batch_std", "gdpo", "sum_then_grpo"):
        algorithm = make_algorithm(advantage=name, advantage_eps=0.0)
        for some in (slice(0, 2), slice(0, 1), slice(0, 4)):
            mask = torch.ones(len(rewards[some]), 1, dtype=torch.bool)
            scores = Scores(rewards=rewards[some], group_index=index[some], mask=mask)
            assert not algorithm.advantages(scores).any(), name


def test_the_leave_one_out_mean_is_not_divided_by_a_leave_one_out_deviation() -> None:
    """The others of the only failure are all equal: a deviation of theirs would be 0."""
    rewards = tensor([0.0] + [0.95] * 7)
    for name in ADVANTAGES:
        if name in PASS_AT_K:
            continue
        assert estimate(name, rewards, torch.zeros(8, dtype=torch.int64)).abs().max() < 10


@pytest.mark.parametrize("name", ADVANTAGES)
def test_one_completion_that_differs_gets_no_huge_advantage(name: str) -> None:
    algorithm = make_algorithm("grpo", advantage=name, pass_k=2)
    scores = Scores(
        rewards=torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64),
        group_index=torch.zeros(4, dtype=torch.int64),
        mask=torch.ones(4, 1, dtype=torch.bool),
    )
    advantages = algorithm.advantages(scores)
    assert 0 < advantages.abs().max() < 10


def test_a_group_without_signal_gets_exactly_zero_from_gdpo_beside_one_with() -> None:
    """The mean over the step, which is subtracted, is 0 but for float dust."""
    live = [[0.1, 1.0], [0.7, 0.3], [0.2, 0.9]]
    parts = tensor([*live, *[[0.3, 0.6]] * 3])
    values = advantages.gdpo(parts, torch.tensor([0] * 3 + [1] * 3), tensor([1.0, 0.3]))
    assert values[3:].tolist() == [0, 0, 0]
    assert (values[:3] != 0).all()


def test_a_best_that_leads_by_float_dust_only_has_tied() -> None:
    rewards = tensor([0.1 + 0.2, 0.3, 0.0])
    assert rewards[0] > rewards[1]
    values = pass_at_k.best_minus_second(rewards, torch.zeros(3, dtype=torch.int64))
    assert values.tolist() == [0, 0, 0]
