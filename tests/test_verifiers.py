"""The boundary around verifiers, and the built-in one."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verigrad.types import FailureKind, Status, Verdict
from verigrad.verifiers import VERIFIERS, last_number, verify


def raising(error: BaseException) -> Callable[[str, Any], float]:
    def verifier(completion: str, reference: Any) -> float:
        raise error

    return verifier


def returning(answer: Any) -> Callable[[str, Any], Any]:
    return lambda completion, reference: answer


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("cannot be shown")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be shown")


@pytest.mark.parametrize(
    ("answer", "reward"),
    [(1.0, 1.0), (0, 0.0), (True, 1.0), (False, 0.0), (-2, -2.0), (0.25, 0.25)],
)
def test_a_number_or_a_truth_value_is_a_reward(answer: float, reward: float) -> None:
    verdict = verify(returning(answer), "", None)
    assert verdict == Verdict.scored(reward)
    assert type(verdict.reward) is float


@pytest.mark.parametrize(
    "verdict", [Verdict.scored(0.5, "half"), Verdict.unparsable("?"), Verdict.failed("broken")]
)
def test_a_verdict_is_taken_as_it_is(verdict: Verdict) -> None:
    assert verify(returning(verdict), "", None) == verdict


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad reference"),
        ZeroDivisionError(),
        MemoryError(),
        RecursionError("too deep"),
        SystemExit(0),
        SystemExit("bye"),
        AssertionError("no"),
        StopIteration(),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
    ids=repr,
)
def test_a_verifier_that_raises_or_exits_has_failed(error: BaseException) -> None:
    verdict = verify(raising(error), "", None)
    assert (verdict.status, verdict.reward) == (Status.FAILED, None)
    assert type(error).__name__ in verdict.detail


def test_a_failure_says_what_and_where_in_one_line() -> None:
    detail = verify(raising(ValueError("bad\nreference")), "", None).detail
    assert detail.startswith("exception: ValueError: bad")
    assert "test_verifiers.py:" in detail
    assert "\n" not in detail


def test_ctrl_c_in_a_verifier_still_stops_the_program() -> None:
    with pytest.raises(KeyboardInterrupt):
        verify(raising(KeyboardInterrupt()), "", None)


@pytest.mark.parametrize(
    "answer",
    [nan, inf, -inf, None, "1", [1.0], {"reward": 1.0}, 1j, 10**400, Unprintable()],
    ids=["nan", "inf", "-inf", "None", "text", "list", "dict", "complex", "huge", "unprintable"],
)
def test_an_answer_that_is_not_a_finite_reward_is_a_failure(answer: Any) -> None:
    verdict = verify(returning(answer), "", None)
    assert (verdict.status, verdict.reward) == (Status.FAILED, None)
    assert verdict.detail


@pytest.mark.parametrize(
    "answer",
    [np.float32(0.5), np.array(0.5), torch.tensor(0.5), Verdict.scored(np.float32(0.5))],
    ids=["numpy", "array", "torch", "verdict"],
)
def test_a_scalar_of_numpy_or_torch_is_the_number_that_it_holds(answer: Any) -> None:
    verdict = verify(returning(answer), "", None)
    assert (verdict.reward, type(verdict.reward)) == (0.5, float)


def test_true_of_numpy_is_true() -> None:
    assert verify(returning(np.isclose(0.1 + 0.2, 0.3)), "", None) == Verdict.scored(1.0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"reward": 1.0, "components": {"a": "much"}}, "could not convert string to float"),
        ({"reward": 1.0, "components": {"a": nan}}, "its part 'a' is nan; expected a finite"),
        ({"reward": 1.0, "components": [1.0]}, "'list' object has no attribute 'items'"),
        ({"reward": 1.0, "components": {"a": 1}, "weights": {"a": None}}, "float() argument"),
        ({"reward": 1.0, "status": "fine"}, "'fine' is not a valid Status"),
    ],
)
def test_a_verdict_that_holds_something_else_is_a_failure(
    fields: dict[str, Any], words: str
) -> None:
    verdict = verify(lambda *_: Verdict(**{"status": Status.SCORED} | fields), "", None)
    assert (verdict.status, verdict.kind) == (Status.FAILED, FailureKind.BAD_VALUE)
    assert verdict.detail.startswith("bad value: the verdict is none as it should be: ")
    assert words in verdict.detail


def test_a_verdict_comes_out_in_the_types_that_it_is_declared_with() -> None:
    given = Verdict(
        status=Status.SCORED, reward=Fraction(1, 2), components={1: True}, detail=ValueError("w")
    )
    verdict = verify(returning(given), "", None)
    assert json.dumps([verdict.reward, verdict.components, verdict.detail]) == (
        '[0.5, {"1": 1.0}, "w"]'
    )


def test_a_wrong_type_is_named_with_what_was_expected() -> None:
    detail = verify(returning("1"), "", None).detail
    assert detail == (
        "bad value: the verifier returned str '1'; expected a number, true or false, or a Verdict"
    )


def test_an_error_that_cannot_be_shown_is_a_failure_all_the_same() -> None:
    verdict = verify(raising(UnprintableError()), "", None)
    assert verdict.status is Status.FAILED
    assert "UnprintableError" in verdict.detail


def test_a_verifier_cannot_change_the_reference_for_the_next_call() -> None:
    def verifier(completion: str, reference: list[int]) -> float:
        reference.append(0)
        return float(len(reference))

    reference = [1, 2]
    assert [verify(verifier, "", reference).reward for _ in range(3)] == [3.0, 3.0, 3.0]
    assert reference == [1, 2]


def test_a_verifier_sees_the_completion_and_the_reference() -> None:
    seen = []

    def verifier(completion: str, reference: Any) -> bool:
        seen.append((completion, reference))
        return True

    verify(verifier, "twelve", {"answer": 12})
    assert seen == [("twelve", {"answer": 12})]


@pytest.mark.parametrize(
    ("completion", "reference"),
    [
        ("19", 19),
        ("12 + 7 = 19", 19),
        ("12 + 7 = 19.", 19),
        ("The answer is 19!", 19),
        ("**19**", 19),
        ("19.0", 19),
        (" 19", 19.0),
        ("0.5", 0.5),
        ("1,234", 1234),
        ("1,234,567.5", 1234567.5),
        ("The answer is...19", 19),
        (".5", 0.5),
        ("\N{MINUS SIGN}19", -19),
        ("1e5", 100000),
        ("$1,000", 1000),
        ("-3", -3),
        ("5 - 8 = -3", -3),
        ("12-7", 7),
        ("007", 7),
        ("the 19th", 19),
        ("first 18, then 19", 19),
        ("18\n19\n", 19),
        ("19", "19.0"),
        ("10,20", 20),
        ("1,2345", 2345),
        ("-0", 0),
    ],
)
def test_the_last_number_is_right_by_value(completion: str, reference: Any) -> None:
    assert last_number(completion, reference).reward == 1.0


@pytest.mark.parametrize(
    ("completion", "reference"),
    [
        ("18", 19),
        ("19, or rather 20", 19),
        ("190", 19),
        ("1.9", 19),
        ("-19", 19),
        ("19", -19),
        ("19.01", 19),
        ("1,2345", 1234),
        ("19 of 20", 19),
    ],
)
def test_another_last_number_is_wrong(completion: str, reference: Any) -> None:
    verdict = last_number(completion, reference)
    assert (verdict.status, verdict.reward) == (Status.SCORED, 0.0)


@pytest.mark.parametrize("completion", ["", "nineteen", "I cannot add.", "x19", "-", ".", "a1b2"])
def test_a_completion_without_a_number_is_unparsable(completion: str) -> None:
    verdict = last_number(completion, 19)
    assert (verdict.status, verdict.reward) == (Status.UNPARSABLE, 0.0)


@pytest.mark.parametrize("reference", [None, "nineteen", [19], True])
def test_a_reference_that_is_no_number_is_a_failure_and_not_a_wrong_answer(reference: Any) -> None:
    assert verify(last_number, "19", reference).status is Status.FAILED


@given(st.integers(-(10**12), 10**12))
def test_any_integer_is_read_with_and_without_separators(number: int) -> None:
    assert last_number(f"it is {number}", number).reward == 1.0
    assert last_number(f"it is {number:,}.", number).reward == 1.0


@given(st.text())
def test_any_text_at_all_gets_a_verdict(text: str) -> None:
    assert verify(last_number, text, 19).status is not Status.FAILED


def test_the_built_in_verifier_has_a_name() -> None:
    names = {"exact", "number", "math", "choice", "format", "json", "regex", "code"}
    assert set(VERIFIERS) == names


@pytest.mark.parametrize("module", ["verigrad.verifiers", "verigrad.tasks"])
def test_importing_verifiers_or_tasks_leaves_torch_out(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
