"""The math and number verifiers: what equals what, and that no answer can hurt them."""

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from verigrad.errors import ConfigError
from verigrad.types import Status, Verdict
from verigrad.verifiers import Math, Number, verify
from verigrad.verifiers.algebra.reading import read
from verigrad.verifiers.algebra.sameness import same
from verigrad.verifiers.algebra.units import read_unit
from verigrad.verifiers.algebra.values import Quantity

ANSWERS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "answers.jsonl").read_text("utf-8").splitlines()
]
VERIFIERS = {"math": Math, "number": Number}


def reward_of(row: dict[str, Any]) -> float | str:
    try:
        verifier = VERIFIERS[row["kind"]](**row.get("options", {}))
    except ConfigError:
        return "error"
    verdict = verify(verifier, row["completion"], row["reference"])
    return "error" if verdict.reward is None else verdict.reward


@pytest.mark.parametrize("kind", sorted(VERIFIERS))
def test_answers_get_the_reward_they_deserve(kind: str) -> None:
    rows = [row for row in ANSWERS if row["kind"] == kind]
    wrong = [row for row in rows if reward_of(row) != row["reward"]]
    assert len(rows) > 100
    assert not wrong, "\n" + "\n".join(map(str, wrong))


def boxed(answer: str, reference: Any, **options: float) -> Verdict:
    return verify(Math(**options), rf"\boxed{{{answer}}}", reference)


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "I cannot tell.",
        r"\boxed{}",
        r"so \boxed{1",
        "<think>5",
        "The answer is",
        "a 升 b {",
        "####",
    ],
)
def test_without_an_answer_the_verdict_is_unparsable(completion: str) -> None:
    assert verify(Math(), completion, "5").status is Status.UNPARSABLE


@pytest.mark.parametrize("reference", ["", "  ", None, True, [1], r"\frac{1}{", r"\boxed{}", "$$"])
def test_a_reference_that_is_no_answer_is_a_failure_that_names_it(reference: Any) -> None:
    verdict = verify(Math(), r"\boxed{5}", reference)
    assert verdict.status is Status.FAILED
    assert "exception: the reference" in verdict.detail


@pytest.mark.parametrize("reference", ["x", "1, 2", "Tuesday", "nan", float("inf"), "(0, 1)"])
def test_a_reference_of_number_must_be_one_finite_number(reference: Any) -> None:
    verdict = verify(Number(), "5", reference)
    assert verdict.status is Status.FAILED
    assert "expected one finite number" in verdict.detail


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf"), "0.1", True])
@pytest.mark.parametrize("name", ["abs_tol", "rel_tol"])
@pytest.mark.parametrize("kind", sorted(VERIFIERS))
def test_a_tolerance_that_is_none_is_refused(kind: str, name: str, tolerance: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        VERIFIERS[kind](**{name: tolerance})


def test_a_tolerance_holds_at_its_very_edge_in_decimals() -> None:
    # In floats 2.51 - 2.50 is more than 0.01.
    assert boxed("2.51", "2.50", abs_tol=0.01).reward == 1.0
    assert boxed("2.5100001", "2.50", abs_tol=0.01).reward == 0.0


def test_a_tolerance_works_in_the_unit_of_the_reference() -> None:
    assert boxed(r"5050\text{ m}", r"5\text{ km}", abs_tol=0.1).reward == 1.0
    assert boxed(r"5200\text{ m}", r"5\text{ km}", abs_tol=0.1).reward == 0.0


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        (r"\int_0^1 x\,dx", r"\int_0^1 x dx"),
        (r"\sum_{k=1}^{n} k", r"$\sum_{k=1}^{n} k$"),
        (r"\lim_{x \to 0} f(x)", r"\lim_{x\to0} f(x)"),
    ],
)
def test_notation_that_is_not_known_is_compared_as_it_stands(answer: str, reference: str) -> None:
    assert boxed(answer, reference).reward == 1.0
    assert boxed(answer + "+1", reference).reward == 0.0


HOSTILE = [
    r"\boxed{9^{9^{9^{9^9}}}}",
    r"\boxed{10^{10^{10^{10}}} - 10^{10^{10^{10}}}}",
    r"\boxed{(10^{10})!}",
    r"\boxed{((((9!)!)!)!)!}",
    r"\boxed{\binom{10^{9}}{5\cdot 10^8}}",
    r"\boxed{\exp(\exp(\exp(\exp(100))))}",
    r"\boxed{x^{x^{x^{x^{x^{x}}}}}}",
    r"\boxed{(x+1)^{999999999}}",
    r"\boxed{\sqrt{" + "9" * 1900 + "}}",
    r"\boxed{" + "+".join(f"1/{n}^{{2900}}" for n in range(1000, 1050)) + "}",
    r"\boxed{" + "+".join(f"\\sqrt{{{n}}}" for n in range(1000, 1040)) + "}",
    r"\boxed{" + "{" * 900 + "1" + "}" * 900 + "}",
    r"\boxed{" + r"\sqrt{2+" * 150 + "2" + "}" * 151,
    r"\boxed{" + r"\sin(" * 70 + "x" + ")" * 70 + "}",
    r"\boxed{\lfloor \pi \cdot 10^{3000} \rfloor}",
    r"\boxed{" * 50_000,
    r"\boxed{1} or " * 50_000,
    "answer is " * 50_000,
    "final answer" + " " * 500_000,
    "1 or " * 50_000,
    "$" * 100_001,
    "(" * 100_000,
    "*_`" * 50_000,
    "1" * 1_000_000,
    "5" + " " * 1_000_000,
    "5" + "<|im_end|>" * 2000,
    r"the answer is \[" + r"\[" * 50_000,
    "1e999999999",
    r"\boxed{" + "1" * 1990 + "e3000}",
    "4" * 4500,
]


@pytest.mark.parametrize("completion", HOSTILE, ids=lambda text: text[:30])
@pytest.mark.parametrize("reference", ["7", r"\sqrt{2}", "x^2+1", "[0,5)", "1, 2"])
def test_no_answer_is_too_hard_to_judge_in_time(completion: str, reference: str) -> None:
    start = time.process_time()
    assert verify(Math(), completion, reference).reward == 0.0
    assert time.process_time() - start < 5


def test_a_power_too_large_to_compute_still_equals_itself() -> None:
    assert boxed("10^{10^{10}}", "10^{10^{10}}").reward == 1.0
    assert boxed("10^{10^{11}}", "10^{10^{10}}").reward == 0.0


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch MARK')",
        "open('MARK','w')",
        r"exec(\"open('MARK','w')\") * \pi",
        "().__class__.__bases__[0]",
        "lambda: open('MARK','w')",
    ],
)
def test_an_answer_is_never_executed(code: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for completion in (rf"\boxed{{{code}}}", f"The answer is {code}", code):
        assert verify(Math(), completion, r"2\pi").reward == 0.0
    assert list(tmp_path.iterdir()) == []


def test_it_works_off_the_main_thread() -> None:
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.append(boxed(r"\frac{2}{4}", "0.5")))
    thread.start()
    thread.join()
    assert [verdict.reward for verdict in verdicts] == [1.0]


def test_importing_verifiers_leaves_sympy_out() -> None:
    code = "import sys, verigrad.verifiers; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


NAMES = st.sampled_from(sympy.symbols("x y n alpha"))
NUMBERS = st.fractions(-20, 20, max_denominator=12).map(
    lambda f: sympy.Rational(f.numerator, f.denominator)
)


def grown(parts: "st.SearchStrategy[Any]") -> "st.SearchStrategy[Any]":
    pairs = st.tuples(parts, parts)
    return st.one_of(
        pairs.map(lambda pair: pair[0] + pair[1]),
        pairs.map(lambda pair: pair[0] * pair[1]),
        parts.map(lambda part: part**2),
        parts.map(lambda part: sympy.sqrt(part**2 + 1)),
        parts.map(lambda part: sympy.sin(part)),
        parts.map(lambda part: sympy.exp(part / 9)),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, NUMBERS), grown, max_leaves=5)


@given(EXPRESSIONS)
@settings(max_examples=60)
def test_what_sympy_writes_in_latex_is_read_back_as_the_same_value(expr: Any) -> None:
    assert same(Quantity(expr), read(sympy.latex(expr)))


@given(EXPRESSIONS)
@settings(max_examples=40)
def test_an_expression_equals_itself_and_not_its_neighbour(expr: Any) -> None:
    text = sympy.latex(expr)
    assert boxed(text, text).reward == 1.0
    assert boxed(f"{text} + 1", text).reward == 0.0


@given(st.fractions())
def test_a_fraction_equals_itself_in_every_notation(number: Any) -> None:
    top, bottom = number.numerator, number.denominator
    for spelled in (f"{top}/{bottom}", rf"\frac{{{top}}}{{{bottom}}}", rf"{top} \div {bottom}"):
        assert boxed(spelled, str(number)).reward == 1.0


@given(st.lists(st.integers(-99, 99), min_size=2, max_size=6, unique=True), st.randoms())
def test_a_list_of_solutions_has_no_order_and_a_point_has(numbers: list[int], dice: Any) -> None:
    shuffled = dice.sample(numbers, len(numbers))
    spelled, other = (", ".join(map(str, one)) for one in (numbers, shuffled))
    assert boxed(other, spelled).reward == 1.0
    assert boxed(f"({other})", f"({spelled})").reward == float(numbers == shuffled)


@given(st.text(), st.sampled_from(["5", "x^2", "1, 2", "[0, 1)", "Tuesday", r"5\text{ km}"]))
def test_any_text_at_all_gets_a_verdict(text: str, reference: str) -> None:
    for completion in (text, rf"\boxed{{{text}}}", f"The answer is {text}"):
        assert verify(Math(), completion, reference).status is not Status.FAILED


_SIGNS = (
    r"\frac{ } ( ) [ ] \{ \} , ; : = < \le + - * / ^ _ ! | \pm \sqrt{ \text{ cm 1 2.5 x y \pi \in "
    r"\cup \infty \begin{pmatrix} \end{pmatrix} & \\ or and % ^\circ $ \boxed{ . ... e i sin \log_"
)
PIECES = st.sampled_from(_SIGNS.split(" "))


@given(st.lists(PIECES, max_size=12).map(" ".join))
@settings(max_examples=300)
def test_any_jumble_of_mathematics_gets_a_verdict(text: str) -> None:
    for reference in ("5", "x = 1, y = 2", r"(0, 1) \cup \{3\}"):
        assert verify(Math(), rf"\boxed{{{text}}}", reference).status is not Status.FAILED


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("km/h", "kilometers per hour"),
        ("square cm", "cm^2"),
        ("cm squared", "cm²"),
        ("mph", "miles/hour"),
    ],
)
def test_a_unit_has_many_spellings(one: str, other: str) -> None:
    spelled = other.replace("²", "^2")
    assert read_unit(one) == read_unit(spelled)
    assert read_unit(one) != read_unit("kg")
