"""Is a number the right one: the answer by the shared convention, or simply the last number."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from verigrad.types import Verdict
from verigrad.verifiers.boundary import bounded
from verigrad.verifiers.tolerance import Tolerance

_NUMBER = re.compile(
    r"(?<!\w)(?<!\d\.)-?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\.)\.\d+)(?:[eE][+-]?\d+)?"
)
"""A sign counts only where no word or number stands before it: the last number of "12-7" is 7."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """Reward 1 when the answer equals a reference that is one number.

    The answer is found and read as by ``Math``: fractions, percentages, powers of ten and units are
    understood. The reference must be one finite number.

    Example:
        Number()("The answer is 5 apples, shared by 3 children.", 5)   -> reward 1
        Number(abs_tol=0.01)("It is about 2.51", "2.50")               -> reward 1
    """

    abs_tol: float = 0.0
    """Largest difference from the reference that is still right; 0 for exact equality."""

    rel_tol: float = 0.0
    """The same, as a share of the reference. The larger of the two counts."""

    def __post_init__(self) -> None:
        """Refuse tolerances that are negative or not finite."""
        Tolerance(abs_tol=self.abs_tol, rel_tol=self.rel_tol)

    def __call__(self, completion: str, reference: Any) -> Verdict:
        """Check one completion.

        Raises:
            TaskError: the reference is not one finite number.
        """
        # SymPy takes a third of a second to import, so whoever needs no mathematics does not pay.
        from verigrad.verifiers.algebra.judging import judge_completion, read_number

        tolerance = Tolerance(abs_tol=self.abs_tol, rel_tol=self.rel_tol)
        return judge_completion(completion, read_number(reference), tolerance)


@bounded
def last_number(completion: str, reference: Any) -> Verdict:
    """Reward 1 when the last number of the completion equals the reference, by value.

    For short completions that are only asked for a number. Thousands separators and exponents are
    understood, and 19 equals 19.0. Without a number the verdict is unparsable.

    Example:
        last_number("12 + 7 = 19.", 19)   -> reward 1
        last_number("I cannot add", 19)   -> unparsable

    Raises:
        ArithmeticError: the reference is not a number.
        ValueError: the reference is not finite.
    """
    found = _NUMBER.findall(completion.replace("\N{MINUS SIGN}", "-"))
    if not found:
        return Verdict.unparsable("there is no number in the completion")
    number = found[-1]
    expected = Decimal(str(reference))
    if not expected.is_finite():
        raise ValueError(f"the reference is {reference}; it must be a finite number")
    right = Decimal(number.replace(",", "")) == expected
    detail = f"the last number is {number}; expected {reference}"
    return Verdict.scored(1.0 if right else 0.0, detail)
