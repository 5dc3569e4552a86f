"""JSON read strictly: what two readers could understand differently is refused.

Python's reader accepts NaN, lets the last of two equal names win, and rounds what a float cannot
hold. Here the first two are errors, and a number keeps the digits it was written with.
"""

import json
from decimal import Decimal
from typing import Any, Never

from verigrad.config.checks import shown
from verigrad.verifiers.json_value import is_deeper

DEEPEST = 100
"""Lists and tables within each other that are read; what is deeper comes from no person."""

NESTED = "is nested too deeply to be read"
HUGE = "has more digits than can be read; write it in quotes, as text"


class BadJsonError(ValueError):
    """Text that is no JSON, or is not read the same everywhere."""

    def __init__(self, reason: str, *, line: int = 0, character: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        """Lines after that on which the text begins."""
        self.character = character
        """The place in that line, from 1; None where only the line is known."""


class Written(float):
    """A number with a point or an exponent that remembers how it was written."""

    text: str

    def __new__(cls, text: str) -> "Written":
        """Make it from its digits."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    @property
    def is_exact(self) -> bool:
        """Whether the float prints as the number that was written."""
        return Decimal(repr(float(self))) == Decimal(self.text)


def parse_json(text: str) -> Any:
    """Read one JSON value, and nothing beside it.

    Raises:
        BadJsonError: says where and why; it may also be nested more than DEEPEST levels deep.
    """
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        reason = error.msg[:1].lower() + error.msg[1:]
        if error.msg == "Extra data":
            reason = "there is more after the end of the value; expected one value"
        raise BadJsonError(reason, line=error.lineno - 1, character=error.colno) from None
    except RecursionError:
        raise BadJsonError(NESTED) from None
    if text.count("[") + text.count("{") > DEEPEST and is_deeper(value, DEEPEST):
        raise BadJsonError(NESTED)
    return value


def plain(value: Any) -> Any:
    """The same, with floats that are only floats."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return float(value) if isinstance(value, Written) else value


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadJsonError(f"has the name {shown(twice)} twice; keep one of them")
    return table


def _constant(text: str) -> Never:
    raise BadJsonError(f"holds {text}, which is no JSON; write a number, null, or text in quotes")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadJsonError(f"holds a number that {HUGE}") from None


def _number(text: str) -> Written:
    number = Written(text)
    if abs(number) == float("inf"):
        raise BadJsonError(f"holds the number {shown(text)}, which {HUGE}")
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_table, parse_constant=_constant, parse_int=_whole, parse_float=_number
)
