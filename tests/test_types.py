"""What flows through a run."""

from dataclasses import FrozenInstanceError, fields
from math import inf, nan

import pytest
from builders import make_completion, make_group

from verigrad import types
from verigrad.core import advantages
from verigrad.types import Completion, Finish, Group, Problem, Status, Verdict


@pytest.mark.parametrize(("status", "reward"), [(Status.SCORED, None), (Status.UNPARSABLE, None)])
def test_a_verdict_that_did_not_fail_has_a_reward(status: Status, reward: None) -> None:
    with pytest.raises(ValueError, match=rf"{status} with reward None; .* exactly when .* failed"):
        Verdict(status=status, reward=reward)


def test_a_failed_verdict_has_no_reward() -> None:
    with pytest.raises(ValueError, match=r"failed with reward 0\.0"):
        Verdict(status=Status.FAILED, reward=0.0)


@pytest.mark.parametrize("reward", [nan, inf, -inf])
def test_a_reward_is_a_finite_number(reward: float) -> None:
    with pytest.raises(ValueError, match="a reward is a finite number"):
        Verdict.scored(reward)


def test_an_unparsable_completion_has_reward_zero_and_says_why() -> None:
    verdict = Verdict.unparsable("no number")
    assert (verdict.status, verdict.reward, verdict.detail) == (
        Status.UNPARSABLE,
        0.0,
        "no number",
    )


def test_a_completion_has_one_log_prob_per_token() -> None:
    with pytest.raises(ValueError, match="3 tokens but 2 log-probs"):
        Completion(
            token_ids=(1, 2, 0),
            log_probs=(-1.0, -1.0),
            finish=Finish.STOPPED,
            policy_version=0,
            text="",
        )


@pytest.mark.parametrize("carrier", [make_completion((1,)), Verdict.scored(1), make_group(0, [])])
def test_nothing_is_filled_in_later(carrier: Completion | Verdict | Group) -> None:
    for field in fields(carrier):
        with pytest.raises(FrozenInstanceError):
            setattr(carrier, field.name, None)


@pytest.mark.parametrize(
    ("rewards", "scored", "signal"),
    [
        ([1.0, 0.0, None, 0.0], (1.0, 0.0, 0.0), True),
        ([1.0, None, None, None], (1.0,), False),
        ([None, None], (), False),
        ([0.1, 0.1, 0.1], (0.1, 0.1, 0.1), False),
        ([0.0, None, 0.0], (0.0, 0.0), False),
        ([], (), False),
    ],
)
def test_failed_rollouts_take_no_part_in_a_groups_signal(
    rewards: list[float | None], scored: tuple[float, ...], signal: bool
) -> None:
    group = make_group(0, [((1,), reward) for reward in rewards])
    assert group.rewards == scored
    assert [rollout.verdict.reward for rollout in group.scored] == list(scored)
    assert group.has_signal is signal


def test_the_content_of_a_problem_is_its_prompt_unless_it_names_another() -> None:
    assert Problem(id="a", prompt="What  is\n1 + 1?", reference=2).content_key == "What is 1 + 1?"
    assert Problem(id="a", prompt="1 + 2", reference=3, content="1+2").content_key == "1+2"


def test_the_content_of_a_chat_is_all_of_its_turns() -> None:
    def content(*turns: tuple[str, str]) -> str:
        messages = tuple({"role": role, "content": text} for role, text in turns)
        return Problem(id="a", prompt=messages, reference=0).content_key  # type: ignore[arg-type]

    asked = content(("system", "Be brief."), ("user", "1 + 1?"))
    assert asked == "system: Be brief.\nuser: 1 + 1?"
    assert asked == content(("system", "Be  brief."), ("user", "1 + 1? "))
    assert asked != content(("user", "1 + 1?"))


def test_rewards_that_differ_by_a_rounding_error_are_no_signal() -> None:
    almost = make_group(0, [((1,), 0.1 + 0.2), ((1,), 0.3)])
    assert almost.rewards[0] != almost.rewards[1]
    assert not almost.has_signal


def test_the_batch_and_the_advantages_agree_on_what_counts_as_equal() -> None:
    assert advantages.EQUAL_WITHIN == types.EQUAL_WITHIN
