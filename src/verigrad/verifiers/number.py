"""Is the last number of a completion the right one."""

import re
from decimal import Decimal
from typing import Any

from verigrad.types import Verdict

_NUMBER = re.compile(
    r"(?<!\w)(?<!\d\.)-?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<!\.)\.\d+)(?:[eE][+-]?\d+)?"
)
"""A sign counts only where no word or number stands before it: the last number of "12-7" is 7."""


def last_number(completion: str, reference: Any) -> Verdict:
    """Reward 1 when the last number of the completion equals the reference, by value.

    Thousands separators and exponents are understood, and 19 equals 19.0. Without a number the
    verdict is unparsable.

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
