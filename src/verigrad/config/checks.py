"""What a value must be: strict types, limits, and the words for what is wrong with it.

Strict on purpose: 6.5 is not 6, 7 is not "7", true is not 1. An int is accepted where a number is
meant.
"""

import difflib
import json
import math
import re
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, time
from typing import Annotated, Any, Literal, Union, get_args, get_origin

LONGEST_SHOWN = 60
"""A value is shown in a message with at most so many characters."""

SMALLEST, LARGEST = 1e-30, 1e30
"""Sizes of the numbers that are accepted: float32 has no others to compute with them."""

SCALAR_WORDS = {
    int: "a whole number",
    float: "a finite number",
    str: "text in quotes",
    bool: "true or false",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The numbers a field accepts; an end is included unless it is said to be open."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """True when the low end itself is not accepted."""

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.above else f"of at least {self.low:g}"
        if math.isinf(self.high):
            return low
        return f"{low} and at most {self.high:g}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """The names a field accepts."""

    names: tuple[str, ...]

    def __contains__(self, value: str) -> bool:
        return value in self.names

    def __str__(self) -> str:
        return f"one of {', '.join(self.names)}"


@dataclass(frozen=True, slots=True)
class Matching:
    """The texts a field accepts: those that a pattern matches from end to end."""

    pattern: str
    words: str
    """The pattern said to a person, as what follows "it must be"."""

    def __contains__(self, value: str) -> bool:
        return re.fullmatch(self.pattern, value) is not None

    def __str__(self) -> str:
        return self.words


def accepts(value: object, hint: Any) -> bool:
    """Whether a value is of a type hint, and within the limits that the hint is annotated with."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, limits = get_args(hint)
        return accepts(value, base) and value in limits
    if origin is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if origin is tuple:
        item = get_args(hint)[0]
        return isinstance(value, list | tuple) and all(accepts(each, item) for each in value)
    if origin in (Union, types.UnionType):
        return any(accepts(value, option) for option in get_args(hint))
    if hint is float:
        return accepts(value, int) or (type(value) is float and _is_usable(value))
    if hint is int:
        # TOML integers have 64 bits, and so have the counters these end up in.
        return type(value) is int and -(2**63) <= value < 2**63
    return type(value) is hint if hint in SCALAR_WORDS else isinstance(value, hint)


def _is_usable(value: float) -> bool:
    return value == 0 or SMALLEST <= abs(value) <= LARGEST


def mismatch(value: object, hint: Any) -> str:
    """Say what is wrong with a value for a type hint, or return an empty string.

    Example: ``mismatch(6.5, int)`` is ``is 6.5; it must be a whole number``.
    """
    if accepts(value, hint):
        return ""
    size = ""
    if type(value) is float and math.isfinite(value) and not _is_usable(value):
        size = f" (0, or from {SMALLEST:g} to {LARGEST:g} in size, which a model can compute with)"
    hinted = did_you_mean(value, names_in(hint))
    return f"is {shown(value)}; {hinted}it must be {expected(hint)}{size}"


def expected(hint: Any) -> str:
    """Say what a type hint accepts, as what follows "it must be"."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, limits = get_args(hint)
        return f"{expected(base)} {limits}" if isinstance(limits, Range) else str(limits)
    if origin is Literal:
        return " or ".join(json.dumps(name) for name in get_args(hint))
    if origin is tuple:
        return "a list of texts in quotes"
    if origin in (Union, types.UnionType):
        options = (option for option in get_args(hint) if option is not types.NoneType)
        return ", or ".join(expected(option) for option in options)
    return SCALAR_WORDS.get(hint) or f"a {hint.__name__}"


def names_in(hint: Any) -> tuple[str, ...]:
    """The names among which a type hint lets one choose; empty where it asks for no name."""
    if isinstance(hint, OneOf):
        return hint.names
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(name for part in get_args(hint) for name in names_in(part))


def scalars_in(hint: Any) -> set[type]:
    """The scalar types that a type hint accepts; a name to choose is a str."""
    if hint in SCALAR_WORDS:
        return {hint}
    if get_origin(hint) is Literal:
        return {str}
    if get_origin(hint) is Annotated:
        return scalars_in(get_args(hint)[0])
    return {scalar for part in get_args(hint) for scalar in scalars_in(part)}


def as_held(value: object, hint: Any) -> object:
    """What a section holds for an accepted value: a list frozen, an int as the number it means."""
    if isinstance(value, list):
        return tuple(value)
    if type(value) is int and int not in scalars_in(hint) and accepts(value, hint):
        return float(value)
    return value


def from_text(text: str, hint: Any) -> object:
    """Read what a person typed as the type that the hint asks for; unreadable text stays text."""
    scalars = scalars_in(hint)
    if get_origin(hint) is tuple and not text.startswith("["):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if text.startswith("[") and any(get_origin(part) is tuple for part in (hint, *get_args(hint))):
        with suppress(ValueError):
            return tuple(json.loads(text))
    if accepts(text, hint) or not text.isascii() or text != text.strip():
        return text
    if bool in scalars and text in ("true", "false"):
        return text == "true"
    for scalar in (int, float):
        if scalar in scalars:
            with suppress(ValueError):
                return scalar(text)
    return text


def shown(value: object) -> str:
    """A value as a person would write it in a TOML file, on one line and not too long."""
    if isinstance(value, str):
        return _shortened(json.dumps(value, ensure_ascii=False))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 64:
        return "a whole number that does not fit into 64 bits"
    if isinstance(value, date | time):
        return f"the date or time {value.isoformat()}"
    if isinstance(value, Mapping):
        return "a table"
    return "an array" if isinstance(value, list | tuple) else _shortened(repr(value))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SHOWN else f"{line[:LONGEST_SHOWN]}..."


def did_you_mean(found: object, choices: Iterable[str]) -> str:
    """``did you mean "grpo"? `` when a choice is near what was found, else an empty string."""
    matcher = difflib.SequenceMatcher(b=str(found).lower())

    def closeness(choice: str) -> float:
        matcher.set_seq1(choice)
        return matcher.ratio()

    # Of choices that are equally near the first one is meant: the commonest stand in front.
    near = [choice for choice in choices if closeness(choice) >= 0.5]
    return f"did you mean {json.dumps(max(near, key=closeness))}? " if near else ""


def one_of(found: object, choices: Iterable[str]) -> str:
    """Name the nearest choice first, then all of them."""
    names = [str(choice) for choice in choices]
    return f"{did_you_mean(found, names)}accepted: {', '.join(names)}"
