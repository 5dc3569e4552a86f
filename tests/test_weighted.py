"""Rewards made of parts, and reward functions written for TRL."""

from typing import Any

import pytest

from verigrad.errors import ConfigError
from verigrad.types import Status, Verdict
from verigrad.verifiers import TrlReward, verify, weighted


def reward(verifier: Any, completion: str, reference: Any = None) -> float | None:
    return verify(verifier, completion, reference).reward


def constant(answer: Any) -> Any:
    return lambda completion, reference: answer


def broken(completion: str, reference: Any) -> float:
    raise ValueError("no such table")


async def later(completion: str, reference: Any) -> float:
    return 0.5


def test_a_weighted_sum_keeps_its_parts() -> None:
    verifier = weighted({"right": (1.0, constant(True)), "short": (0.5, constant(-1.0))})
    verdict = verify(verifier, "", None)
    assert (verdict.status, verdict.reward) == (Status.SCORED, 0.5)
    assert verdict.components == {"right": 1.0, "short": -1.0}


def test_a_part_with_a_weight_that_fails_makes_the_verdict_failed() -> None:
    verdict = verify(weighted({"a": (1.0, constant(1.0)), "b": (0.1, broken)}), "", None)
    assert verdict.status is Status.FAILED
    assert verdict.detail.startswith("part 'b': exception: ValueError: no such table")


def test_a_part_without_a_weight_is_only_shown() -> None:
    parts = {"a": (1.0, constant(0.5)), "b": (0.0, constant(7.0)), "c": (0.0, broken)}
    verdict = verify(weighted(parts), "", None)
    assert (verdict.reward, verdict.components) == (0.5, {"a": 0.5, "b": 7.0})


def test_a_part_that_does_not_apply_is_left_out() -> None:
    verdict = verify(weighted({"a": (1.0, constant(None)), "b": (2.0, later)}), "", None)
    assert (verdict.reward, verdict.components) == (1.0, {"b": 0.5})


@pytest.mark.parametrize("other", [constant(None), broken], ids=["not applicable", "broken"])
def test_a_sum_of_which_nothing_is_left_has_failed(other: Any) -> None:
    parts = {"a": (1.0, constant(None)), "b": (0.0, other)}
    assert verify(weighted(parts), "", None).status is Status.FAILED


def test_a_sum_is_unparsable_only_when_all_of_it_is() -> None:
    nothing = constant(Verdict.unparsable("?"))
    both = weighted({"a": (1.0, nothing), "b": (0.2, nothing), "c": (0.0, constant(1.0))})
    one = weighted({"a": (1.0, nothing), "b": (0.2, constant(1.0))})
    assert verify(both, "", None).status is Status.UNPARSABLE
    assert (verify(one, "", None).status, verify(one, "", None).reward) == (Status.SCORED, 0.2)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), "1", True, None])
def test_a_weight_that_is_no_number_is_refused(weight: Any) -> None:
    with pytest.raises(ConfigError, match="the weight of part 'a'"):
        weighted({"a": (weight, constant(1.0))})


@pytest.mark.parametrize("parts", [{}, {"a": (0.0, constant(1.0))}])
def test_a_sum_without_weight_is_refused(parts: Any) -> None:
    with pytest.raises(ConfigError, match="no part has a weight"):
        weighted(parts)


# Reward functions written for TRL.


def length_reward(completions: list[str], **columns: Any) -> list[float]:
    return [float(len(completion)) for completion in completions]


def match_reward(prompts: Any, completions: Any, answer: Any, **columns: Any) -> list[float | None]:
    assert prompts == ["2+2?"]
    return [
        None if one is None else float(text == one)
        for text, one in zip(completions, answer, strict=True)
    ]


def test_a_trl_reward_function_is_called_with_lists_of_one() -> None:
    reference = {"prompt": "2+2?", "answer": "4", "source": "made up"}
    assert reward(TrlReward(function=length_reward), "four", reference) == 4.0
    assert reward(TrlReward(function=match_reward), "4", reference) == 1.0
    assert reward(TrlReward(function=match_reward), "5", reference) == 0.0


def test_a_plain_reference_is_the_column_that_is_named() -> None:
    def same(completions: Any, truth: Any) -> list[bool]:
        return [text == one for text, one in zip(completions, truth, strict=True)]

    assert reward(TrlReward(function=same, column="truth"), "4", "4") == 1.0


def test_chat_completions_are_lists_of_messages() -> None:
    def role(completions: Any, **columns: Any) -> list[float]:
        return [float(turns == [{"role": "assistant", "content": "4"}]) for turns in completions]

    assert reward(TrlReward(function=role, conversational=True), "4") == 1.0


def test_an_asynchronous_trl_function_is_awaited() -> None:
    async def function(completions: Any, **columns: Any) -> list[float]:
        return [0.25]

    assert reward(TrlReward(function=function), "") == 0.25


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_count_of_rewards_is_a_failure_with_both_counts(count: int) -> None:
    def several(completions: Any, **columns: Any) -> list[float]:
        return [1.0] * count

    verdict = verify(TrlReward(function=several), "", None)
    assert verdict.status is Status.FAILED
    assert f"several returned {count} rewards for 1 completion" in verdict.detail


@pytest.mark.parametrize("answer", [1.0, None, ["a"], [[1.0]]], ids=repr)
def test_anything_but_a_list_of_numbers_is_a_failure(answer: Any) -> None:
    def odd(completions: Any, **columns: Any) -> Any:
        return answer

    assert verify(TrlReward(function=odd), "", None).status is Status.FAILED


def test_a_trl_function_that_does_not_apply_is_left_out_of_a_sum_and_fails_alone() -> None:
    def never(completions: Any, **columns: Any) -> list[None]:
        return [None]

    alone = TrlReward(function=never)
    assert verify(alone, "", None).status is Status.FAILED
    assert reward(weighted({"a": (1.0, alone), "b": (1.0, constant(1.0))}), "") == 1.0
