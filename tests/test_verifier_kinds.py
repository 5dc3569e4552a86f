"""What the answer of a completion is, and the verifiers of text, options and layout."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verigrad.errors import ConfigError
from verigrad.types import Status
from verigrad.verifiers import (
    VERIFIERS,
    Choice,
    Exact,
    Format,
    Regex,
    verify,
)
from verigrad.verifiers.answer import NoAnswer, Source, find_answer

DATA = Path(__file__).parent / "data" / "answers.jsonl"
CHOICES = [
    row for row in map(json.loads, DATA.read_text("utf-8").splitlines()) if row["kind"] == "choice"
]


def reward(verifier: Any, completion: str, reference: Any = None) -> float | None:
    return verify(verifier, completion, reference).reward


# What the answer is.


@pytest.mark.parametrize(
    ("completion", "text", "source"),
    [
        (r"\boxed{1} then \boxed{2}", "2", Source.BOX),
        (r"\boxed{1} and \boxed{2}", "1, 2", Source.BOX),
        (r"\boxed{\{1\}}", r"\{1\}", Source.BOX),
        (r"\boxed{1} The answer is 2.", "1", Source.BOX),
        ("#### 1\n#### 2\nThe answer is 3.", "2", Source.HASHES),
        ("#### Final answer: 2", "2", Source.HASHES),
        ("The answer is 1. No, the answer is 2.", "2.", Source.CUE),
        ("**Final Answer:** **2**\nand more", "2", Source.CUE),
        ("Final Answer\n\n2", "2", Source.CUE),
        ("The answer to the question is 2", "2", Source.CUE),
        ("I get *2*", "I get 2", Source.TEXT),
        ("<think>1</think>\n<answer>\n2\n</answer>", "2", Source.TEXT),
        ("<think>The answer is 1</think>2", "2", Source.TEXT),
        ("2<|im_end|>\n", "2", Source.TEXT),
    ],
)
def test_the_answer_is_the_last_box_then_hashes_then_a_cue(
    completion: str, text: str, source: Source
) -> None:
    answer = find_answer(completion)
    assert (answer.text, answer.source) == (text, source)


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "<think>2",
        "<think>1</think><think>2",
        r"\boxed{1} \boxed{",
        r"\boxed{1} \boxed{}",
        r"2 \boxed",
        r"2 \box",
        "The answer is",
        "####",
        r"\boxed{" + "1" * 3000 + "}",
    ],
    ids=lambda text: text[:20] or "empty",
)
def test_a_cut_off_or_empty_answer_is_none(completion: str) -> None:
    with pytest.raises(NoAnswer):
        find_answer(completion)


# Exact.


@pytest.mark.parametrize(
    ("completion", "reference", "options", "expected"),
    [
        ("yes\n", "yes", {}, 1.0),
        ("yes\n", "yes", {"strip": False}, 0.0),
        ("Yes", "yes", {}, 0.0),
        ("Yes", "yes", {"ignore_case": True}, 1.0),
        ("B", ["A", "B"], {}, 1.0),
        ("C", ["A", "B"], {}, 0.0),
        ("7", 7, {}, 1.0),
        ("the cat", "cat", {"ignore_articles": True}, 1.0),
        ("Pnm", "Panama", {"ignore_articles": True}, 0.0),
        ("( B )", "(B)", {"ignore_punctuation": True}, 1.0),
        ("New\N{NO-BREAK SPACE}York", "New York", {}, 0.0),
        ("New\N{NO-BREAK SPACE}York", "New York", {"normalize_whitespace": True}, 1.0),
        ("cafe\N{COMBINING ACUTE ACCENT}", "café", {}, 0.0),
        ("cafe\N{COMBINING ACUTE ACCENT}", "café", {"normalize_unicode": True}, 1.0),
        ("cafe", "café", {"normalize_unicode": True}, 0.0),
        ("<think>no</think>yes", "yes", {}, 1.0),
        ("Not Paris this time, Lyon.", "Paris", {}, 0.0),
    ],
)
def test_exact_forgives_what_it_is_told_to(
    completion: str, reference: Any, options: dict[str, bool], expected: float
) -> None:
    assert reward(Exact(**options), completion, reference) == expected


@pytest.mark.parametrize("reference", ["", " ", [], ["a", ""], None, True, {"a": 1}, "the"])
def test_exact_fails_when_there_is_nothing_to_compare_with(reference: Any) -> None:
    verdict = verify(Exact(ignore_articles=True), "anything", reference)
    assert verdict.status is Status.FAILED
    assert "the reference" in verdict.detail


# Choice.


def test_choice_pays_the_chosen_option_and_no_other() -> None:
    wrong = []
    for row in CHOICES:
        verifier = Choice(choices=row["choices"])
        paid = [label for label in row["choices"] if reward(verifier, row["completion"], label)]
        if paid != ([row["chosen"]] if row["chosen"] else []):
            wrong.append(f"{row['completion']!r}: expected {row['chosen']}, paid {paid}")
    assert len(CHOICES) > 50
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_option_at_once_is_no_answer() -> None:
    for completion in ("A, B, C, D", "A\nB\nC\nD", "(A) (B) (C) (D)", "Answer: A or B or C or D"):
        assert verify(Choice(), completion, "A").status is Status.UNPARSABLE


def test_the_options_may_come_with_the_problem() -> None:
    reference = {"label": "2", "choices": {"1": "ribosome", "2": "nucleus"}}
    assert reward(Choice(), "Answer: 2", reference) == 1.0
    assert reward(Choice(), "the nucleus", reference) == 1.0
    assert reward(Choice(), "the ribosome", reference) == 0.0


@pytest.mark.parametrize(
    "reference", ["Z", "", None, {"label": "A"}, {"label": "Z", "choices": "AB"}]
)
def test_a_reference_that_is_no_option_is_a_failure(reference: Any) -> None:
    assert verify(Choice(), "Answer: A", reference).status is Status.FAILED


@pytest.mark.parametrize(
    "choices", ["ABCD", [], ["A"], ["A", "a"], ["A", ""], {"A": "x", "B": ""}, 4]
)
def test_choices_that_cannot_be_told_apart_are_refused(choices: Any) -> None:
    with pytest.raises(ConfigError, match=r"choices is"):
        Choice(choices=choices)


@pytest.mark.parametrize("loop", ["A ", "A B ", "not A ", "A, ", "(A) ", "the cat "])
def test_a_completion_that_repeats_itself_is_judged_in_time(loop: str) -> None:
    choices = {"A": "the cat", "B": "the dog"}
    start = time.process_time()
    for completion in (loop * 10_000, "The answer is " + loop * 10_000):
        assert verify(Choice(choices=choices), completion, "B").reward == 0.0
    assert time.process_time() - start < 4


# Format and regex.


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>a</think><answer>4</answer>", 1.0),
        ("\n<think>\na\n</think>\n\n<answer>\n9\n</answer>\n", 1.0),
        ("<think></think><answer></answer>", 1.0),
        ("", 0.0),
        ("<think>a</think>", 0.0),
        ("<think>a</think><answer>4", 0.0),
        ("so <think>a</think><answer>4</answer>", 0.0),
        ("<think>a</think> so <answer>4</answer>", 0.0),
        ("<think>a</think><answer>4</answer> ok", 0.0),
        ("<answer>4</answer><think>a</think>", 0.0),
        ("<think>a<answer></think>4</answer>", 0.0),
        ("<think>a</think><think>b</think><answer>4</answer>", 0.0),
        ("<think><answer>5</answer></think><answer>6</answer>", 0.0),
    ],
)
def test_think_answer_is_two_blocks_and_nothing_else(completion: str, expected: float) -> None:
    assert reward(Format(template="think_answer"), completion) == expected


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>a</think>b", 1.0),
        ("<think>a</think>", 1.0),
        ("b<think>a</think>", 0.0),
        ("<think>a", 0.0),
        ("</think>a<think>", 0.0),
        ("<think>a</think>b</think>c", 0.0),
    ],
)
def test_think_is_one_block_at_the_start(completion: str, expected: float) -> None:
    assert reward(Format(template="think"), completion) == expected


def test_a_block_may_be_required_to_say_something() -> None:
    strict = Format(template="think_answer", nonempty=True)
    assert reward(strict, "<think> </think><answer>4</answer>") == 0.0
    assert reward(strict, "<think>a</think><answer>\n</answer>") == 0.0
    assert reward(strict, "<think>a</think><answer>4</answer>") == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"template": "think_anwser"},
        {"template": ""},
        {"template": "think", "pattern": "a"},
        {"pattern": "("},
        {"pattern": ""},
        {"pattern": "a", "mode": "match"},
        {"pattern": "a", "flags": "q"},
    ],
    ids=str,
)
def test_a_format_that_says_nothing_or_is_unknown_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Format(**options)


def test_a_pattern_matches_the_whole_text_unless_told_to_search() -> None:
    date = r"\d{4}-\d{2}-\d{2}"
    assert reward(Format(pattern=date), "2031-05-01") == 1.0
    assert reward(Format(pattern=date), "2031-05-01; see note") == 0.0
    assert reward(Format(pattern=date, mode="search"), "2031-05-01; see note") == 1.0
    assert reward(Format(pattern="a.b", flags="is"), "A\nB") == 1.0


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("(a|aa)+$", "a" * 60 + "!", 0.0),
        ("(a|aa)+$", "a" * 60, 1.0),
        ("(?:(?:.*?a)+)+b", "a" * 40, 0.0),
    ],
)
def test_a_pattern_that_backtracks_for_ever_is_decided_all_the_same(
    pattern: str, text: str, expected: float
) -> None:
    start = time.process_time()
    assert reward(Format(pattern=pattern), text) == expected
    assert time.process_time() - start < 4


def test_a_pattern_that_nobody_can_decide_in_time_is_a_failure() -> None:
    verdict = verify(Format(pattern=r"é(a|aa)+$"), "é" + "a" * 60 + "!", None)
    assert verdict.status is Status.FAILED
    assert "takes longer than 0.3 s" in verdict.detail


def test_regex_looks_at_the_text_after_the_reasoning() -> None:
    assert reward(Regex(pattern="[0-9]+"), "<think>hm</think> 42 ") == 1.0
    assert reward(Regex(pattern="[0-9]+"), "<think>42</think> none") == 0.0
    assert verify(Regex(pattern="[0-9]+"), "<think>42", None).status is Status.UNPARSABLE
    assert reward(Regex(), "42", "[0-9]+") == 1.0
    assert reward(Regex(), "42", "(") is None


# All of them.


@given(st.text())
def test_any_text_at_all_gets_a_verdict_from_every_verifier(text: str) -> None:
    references = {"number": 5, "math": "5", "choice": "A", "exact": "x", "json": 1, "regex": "a+"}
    for name, reference in references.items():
        for completion in (text, f"The answer is {text}"):
            assert verify(VERIFIERS[name], completion, reference).status is not Status.FAILED
