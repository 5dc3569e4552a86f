"""Rewards of groups to advantages."""

from itertools import pairwise
from typing import Any

import pytest
import torch
from builders import make_algorithm
from golden import assert_close, cases, tensor
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from verigrad.algorithms import Scores
from verigrad.config.schema import ADVANTAGES
from verigrad.core import advantages

ANY_REWARD = st.floats(-1e3, 1e3, allow_subnormal=False)


def estimate(name: str, rewards: Tensor, group_index: Tensor) -> Tensor:
    """The advantages ``[B]`` of an estimator under the name that a configuration gives it."""
    scores = Scores(
        rewards=rewards,
        group_index=group_index,
        mask=torch.ones(len(rewards), 1, dtype=torch.bool),
    )
    return make_algorithm(advantage=name).advantages(scores)


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[float], list[int]]:
    """Rewards and group indices of up to four groups of up to six rows, in any order."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    index = draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)]))
    return draw(st.lists(ANY_REWARD, min_size=len(index), max_size=len(index))), index


@pytest.mark.parametrize(("inputs", "expected"), cases("advantage"))
def test_golden_advantages(inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    rewards, group_index = tensor(inputs["rewards"]), torch.tensor(inputs["group_ids"])
    valid = torch.tensor(inputs.get("valid", [1] * len(rewards))).bool()
    function = getattr(advantages, inputs["estimator"])
    options = {}
    if inputs["estimator"] == "grpo":
        options = {key: inputs[key] for key in ("eps", "ddof") if key in inputs}
    if "error" in expected:
        with pytest.raises(ValueError, match=f"^{expected['error']}"):
            function(rewards, group_index, **options)
        return
    actual = torch.zeros_like(rewards)
    actual[valid] = function(rewards[valid], group_index[valid], **options)
    assert_close(actual, expected["advantages"])
    exact = tensor(expected["advantages"]) == 0
    if exact.all():
        assert not actual.any(), "a group without signal has advantages of exactly 0"


@pytest.mark.parametrize("name", ADVANTAGES)
@given(reward=st.floats(-1e6, 1e6), size=st.integers(1, 8))
def test_equal_rewards_give_exactly_zero(name: str, reward: float, size: int) -> None:
    rewards = torch.full((size,), reward, dtype=torch.float64)
    assert not estimate(name, rewards, torch.zeros(size, dtype=torch.int64)).any()


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 0.95])
def test_equal_rewards_give_exactly_zero_without_an_epsilon_too(reward: float, size: int) -> None:
    rewards = torch.full((size,), reward, dtype=torch.float64)
    index = torch.zeros(size, dtype=torch.int64)
    assert advantages.grpo(rewards, index, eps=0.0).tolist() == [0.0] * size


@pytest.mark.parametrize("name", ADVANTAGES)
@given(groups())
def test_advantages_of_a_group_sum_to_zero(name: str, drawn: tuple[list[float], list[int]]) -> None:
    rewards, index = torch.tensor(drawn[0], dtype=torch.float64), torch.tensor(drawn[1])
    sums = torch.zeros(4, dtype=torch.float64).index_add(0, index, estimate(name, rewards, index))
    assert sums.abs().max() <= 1e-12 * max(1.0, *(abs(reward) for reward in drawn[0]))


@pytest.mark.parametrize("name", ADVANTAGES)
@given(groups(), st.randoms(use_true_random=False))
def test_a_row_keeps_its_advantage_in_any_order(
    name: str, drawn: tuple[list[float], list[int]], random: Any
) -> None:
    rewards, index = torch.tensor(drawn[0], dtype=torch.float64), torch.tensor(drawn[1])
    order = list(range(len(index)))
    random.shuffle(order)
    expected = estimate(name, rewards, index)[order]
    actual = estimate(name, rewards[order], index[order])
    assert torch.allclose(actual, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_one_group_does_not_move_another(name: str) -> None:
    alone = estimate(name, tensor([1.0, 0.0, 0.5]), torch.tensor([0, 0, 0]))
    beside = estimate(name, tensor([1.0, 0.0, 0.5, 900.0, -7.0]), torch.tensor([0, 0, 0, 1, 1]))
    assert torch.equal(beside[:3], alone)


@pytest.mark.parametrize("name", ADVANTAGES)
@given(st.lists(ANY_REWARD, min_size=2, max_size=6, unique=True))
def test_a_better_reward_has_a_better_advantage(name: str, rewards: list[float]) -> None:
    rewards = sorted(round(reward, 3) for reward in rewards)
    values = estimate(name, tensor(rewards), torch.zeros(len(rewards), dtype=torch.int64)).tolist()
    for (low, high), (worse, better) in zip(pairwise(rewards), pairwise(values), strict=True):
        assert (better > worse) == (high > low)


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    rewards = tensor([3.0, 1.0, 2.0])
    actual = advantages.rloo(rewards, torch.tensor([0, 0, 0]))
    assert actual.tolist() == pytest.approx([3 - 1.5, 1 - 2.5, 2 - 2.0], abs=1e-15)


def test_grpo_of_two_gives_one_over_root_two_whatever_the_rewards() -> None:
    actual = advantages.grpo(tensor([0.9, 0.2]), torch.tensor([0, 0]), eps=0.0)
    assert actual.tolist() == pytest.approx([2**-0.5, -(2**-0.5)], abs=1e-15)


@pytest.mark.parametrize("name", ADVANTAGES)
def test_a_small_but_real_difference_is_a_signal(name: str) -> None:
    actual = estimate(name, tensor([0.5, 0.5 + 1e-6]), torch.tensor([0, 0]))
    assert actual[1] > 0


@pytest.mark.parametrize("name", ADVANTAGES)
def test_float32_rewards_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"rewards are torch\.float32; .* from float64"):
        estimate(name, torch.tensor([1.0, 0.0]), torch.tensor([0, 0]))


@pytest.mark.parametrize("name", ADVANTAGES)
def test_an_infinite_reward_is_named_by_its_row(name: str) -> None:
    with pytest.raises(ValueError, match="row 2 has reward inf"):
        estimate(name, tensor([1.0, 0.0, "Infinity"]), torch.tensor([0, 0, 0]))
