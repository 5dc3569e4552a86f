"""Whether what a program produced is what was expected, by value.

The values compared are plain data that this process made itself: no method of the program's is ever
called on them.
"""

import math
import re
from typing import Any

_NUMBER = re.compile(
    r"(?<![\w.])[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?(?![\w.])", re.ASCII
)
"""A number that is no part of a word; it never tries the same digits twice."""


def same_value(found: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Whether a value equals the expected one, as Python has it: 2 equals 2.0.

    Expected values come from JSON, which has no tuples and only text for keys: a tuple equals the
    list of the same items, and a key of another kind equals its own text. Within a tolerance,
    numbers at any depth may differ by it, and where a fraction is expected, by that share of it.

    Args:
        found: plain data, or an Opaque, which equals nothing.
        expected: JSON.
        tolerance: not negative.
    """
    if isinstance(expected, bool | int | float):
        return isinstance(found, bool | int | float) and same_number(found, expected, tolerance)
    if isinstance(expected, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(expected)
            and all(same_value(f, e, tolerance) for f, e in zip(found, expected, strict=True))
        )
    if isinstance(expected, dict):
        return isinstance(found, dict) and _same_dict(found, expected, tolerance)
    return bool(type(found) is type(expected) and found == expected)


def same_number(found: float, expected: float, tolerance: float) -> bool:
    """Whether a number equals another, or comes close enough to it."""
    if found == expected or (found != found and expected != expected):
        return True
    if tolerance == 0:
        return False
    share = tolerance if isinstance(expected, float) else 0.0
    try:
        return math.isclose(found, expected, rel_tol=share, abs_tol=tolerance)
    except OverflowError:  # An integer too large to be compared with a fraction.
        return False


def _same_dict(found: dict[Any, Any], expected: dict[Any, Any], tolerance: float) -> bool:
    named = {_key(key): value for key, value in found.items()}
    wanted = {_key(key): value for key, value in expected.items()}
    return (
        len(named) == len(found)
        and named.keys() == wanted.keys()
        and all(same_value(named[key], wanted[key], tolerance) for key in wanted)
    )


def _key(key: object) -> object:
    """A key as JSON writes it, if it can."""
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return str(key) if isinstance(key, int | float) else key


def same_output(found: str, expected: str, tolerance: float = 0.0) -> bool:
    """Whether two outputs have the same lines, blanks at the ends of lines and of the text aside.

    Within a tolerance, numbers may differ as in same_value, also in brackets ("[0.3333,"); all else
    must be equal.
    """
    ours, theirs = _lines(found), _lines(expected)
    if ours == theirs or tolerance == 0 or len(ours) != len(theirs):
        return ours == theirs
    return all(_same_line(f, e, tolerance) for f, e in zip(ours, theirs, strict=True))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _same_line(found: str, expected: str, tolerance: float) -> bool:
    ours, theirs = found.split(), expected.split()
    return len(ours) == len(theirs) and all(
        f == e or _same_word(f, e, tolerance) for f, e in zip(ours, theirs, strict=True)
    )


def _same_word(found: str, expected: str, tolerance: float) -> bool:
    """Is it the same but for its numbers, and are they close enough?"""
    if _NUMBER.split(found) != _NUMBER.split(expected):
        return False
    pairs = zip(_NUMBER.findall(found), _NUMBER.findall(expected), strict=True)
    return all(_same_numeral(ours, theirs, tolerance) for ours, theirs in pairs)


def _same_numeral(found: str, expected: str, tolerance: float) -> bool:
    whole = re.fullmatch(r"[+-]?\d{1,4000}", expected) is not None
    return same_number(float(found), int(expected) if whole else float(expected), tolerance)
