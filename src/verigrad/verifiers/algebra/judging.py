"""An answer against a reference: the verdict of the ``math`` and ``number`` verifiers."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy

from verigrad.errors import TaskError
from verigrad.types import Verdict
from verigrad.verifiers.algebra.bounded import Expr
from verigrad.verifiers.algebra.numeric import agree
from verigrad.verifiers.algebra.prose import answer_formula, answer_words, undelimited
from verigrad.verifiers.algebra.reading import read
from verigrad.verifiers.algebra.sameness import Close, same
from verigrad.verifiers.algebra.tokens import Unreadable
from verigrad.verifiers.algebra.values import Named, Quantity, Value, Words
from verigrad.verifiers.algebra.wording import plain_words
from verigrad.verifiers.answer import (
    Answer,
    NoAnswer,
    Source,
    find_answer,
    without_emphasis,
)
from verigrad.verifiers.tolerance import Tolerance

_REMARK = re.compile(r"\s\([^()]*\)$")


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference answer: its text, and its value unless it is notation that we do not know."""

    text: str
    value: Value | None


def read_reference(reference: Any) -> Reference:
    r"""Read a reference: text or a number, with or without ``$``, ``\boxed`` or ``####``.

    Raises:
        TaskError: it is empty, of another type, or its braces do not match.
    """
    if isinstance(reference, bool) or not isinstance(reference, str | int | float | Fraction):
        raise TaskError(
            f"the reference is {reference!r:.80}; expected text or a number to compare answers with"
        )
    text = str(reference).strip()
    if "\\boxed" in text or "####" in text:
        try:
            text = find_answer(text).text
        except NoAnswer as reason:
            raise TaskError(f"the reference {text!r:.80} holds no answer: {reason}") from None
    text = undelimited(text).strip()
    if not text:
        raise TaskError("the reference is empty; there is nothing to compare answers with")
    if not _is_balanced(text):
        raise TaskError(f"the reference {text!r:.80} has braces that do not match")
    try:
        return Reference(text, read(text))
    except Unreadable:
        return Reference(text, None)


def read_number(reference: Any) -> Reference:
    """Read a reference that must be one finite real number.

    Raises:
        TaskError: it is something else.
    """
    expected = read_reference(reference)
    value = expected.value
    if isinstance(value, Named):
        value = value.value
    if not isinstance(value, Quantity) or not _is_finite(value.expr):
        raise TaskError(
            f"the reference is {reference!r:.80}; expected one finite number, "
            "so that answers can be compared with it"
        )
    return Reference(expected.text, value)


def judge_completion(completion: str, expected: Reference, tolerance: Tolerance) -> Verdict:
    """Find a completion's answer and compare it with a reference."""
    try:
        return judge(find_answer(completion), expected, tolerance)
    except NoAnswer as reason:
        return Verdict.unparsable(str(reason))


def judge(answer: Answer, expected: Reference, tolerance: Tolerance) -> Verdict:
    """Compare an answer with a reference.

    Raises:
        NoAnswer: the answer cannot be read.
    """
    right, shown = _compare(answer, expected, tolerance)
    return Verdict.scored(
        1.0 if right else 0.0, f"the answer is {shown:.80}; expected {expected.text:.80}"
    )


def read_answer(answer: Answer) -> tuple[Value, str]:
    """The value of an answer, and the text that states it.

    Raises:
        NoAnswer: there is nothing that can be read.
    """
    if answer.source is Source.BOX:
        return _read(undelimited(without_emphasis(answer.text))), answer.text
    stated = answer_formula(answer)
    if stated is None and answer.source is Source.TEXT:
        raise NoAnswer("there is no number or formula in the completion")
    # After a cue, words may be an answer: "no solution".
    stated = stated or answer_words(answer)[0]
    return _read_prose(stated), stated


def _read_prose(text: str) -> Value:
    """Read a formula; a remark in parentheses behind it may be none: "5 (x = 5)"."""
    try:
        return _read(text)
    except NoAnswer:
        formula = _REMARK.sub("", text)
        if formula == text:
            raise
        return _read(formula)


def _read(text: str) -> Value:
    try:
        return read(text)
    except Unreadable as reason:
        raise NoAnswer(f"the answer {text!r:.80} cannot be read: {reason}") from None


def _compare(answer: Answer, expected: Reference, tolerance: Tolerance) -> tuple[bool, str]:
    if expected.value is None:
        return _bare(answer.text) == _bare(expected.text), answer.text
    if isinstance(expected.value, Words) and answer.source is not Source.BOX:
        spoken = [plain_words(words) for words in answer_words(answer)]
        return expected.value.text in spoken, spoken[0]
    given, shown = read_answer(answer)
    try:
        return same(expected.value, given, _close(tolerance)), shown
    except (ArithmeticError, ValueError, NotImplementedError, RecursionError) as error:
        # SymPy gives up on some monsters; the reference has been read, so it is the answer's doing.
        raise NoAnswer(f"the answer {shown!r:.80} cannot be compared: {error!s:.80}") from None


def _bare(text: str) -> str:
    """Text without white space and cosmetics, for notation that is compared as it stands."""
    return re.sub(r"\s|\\[,;:!]|\\left|\\right|\$|[.]$", "", text)


def _close(tolerance: Tolerance) -> Close:
    if tolerance.is_exact:
        return agree

    def close(reference: Expr, given: Expr) -> bool:
        if agree(reference, given):
            return True
        if not (_is_finite(reference) and _is_finite(given)):
            return False
        exact = _fraction(reference)
        return abs(exact - _fraction(given)) <= tolerance.allowed(exact)

    return close


def _is_finite(expr: Expr) -> bool:
    return bool(expr.is_number) and expr.is_extended_real is True and expr.is_finite is True


def _fraction(expr: Expr) -> Fraction:
    exact = sympy.Rational(expr if expr.is_Rational else str(expr.evalf(40)))
    return Fraction(int(exact.p), int(exact.q))


def _is_balanced(text: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0
