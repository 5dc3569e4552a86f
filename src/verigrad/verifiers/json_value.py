"""Is a completion the JSON that was asked for?"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, get_args

from verigrad.errors import ConfigError, TaskError
from verigrad.types import Verdict
from verigrad.verifiers.answer import NoAnswer, final_text
from verigrad.verifiers.schemas import check_schema, violation

Use = Literal["value", "schema", "unused"]

_FENCE = re.compile(r"[ \t]*```[ \t]*([\w-]*)\s*")
_MOST_BRACKETS = 300
"""Brackets in prose that begin no JSON; a text with more of them is not searched to its end."""

MOST_NESTED = 64
"""Deepest nesting of arrays and objects that is judged, as schemas are checked recursively."""

_OBJECT_START = re.compile(r'\{\s*["}]')


@dataclass(frozen=True, kw_only=True, slots=True)
class Json:
    """Reward 1 when the text after any reasoning is one JSON value, and the right one.

    JSON is taken strictly: no NaN, no trailing comma, no name twice in an object. Values are equal
    as JSON values: 1 equals 1.0, and true does not equal 1; the order of names does not count.

    Example:
        Json()('{"n": 3}', {"n": 3})                                               -> reward 1
        Json(schema={"type": "object"}, reference_is="unused")('[1, 2]', None)     -> reward 0
    """

    schema: Mapping[str, Any] | bool | None = None
    """A JSON Schema that the value must fulfil; references to other documents are not followed."""

    extract: bool = False
    """The value may stand in prose: in the fenced block, else as the only top-level object."""

    reference_is: Use = "value"
    """What a problem's reference is: the value to equal, a schema to fulfil, or not used."""

    def __post_init__(self) -> None:
        """Refuse a schema that is none, and options that check nothing."""
        if self.reference_is not in get_args(Use):
            raise ConfigError(
                f"reference_is is {self.reference_is!r}; expected {', '.join(get_args(Use))}"
            )
        if self.schema is not None:
            check_schema(self.schema, ConfigError)

    def solution(self, reference: Any) -> str | None:
        """A completion that is right; None where the reference is not the value."""
        return json.dumps(reference) if self.reference_is == "value" else None

    def __call__(self, completion: str, reference: Any) -> Verdict:
        """Check one completion.

        Raises:
            TaskError: the reference is a schema that is not valid, or no JSON value.
            ConfigError: the schema refers to another document.
            VerigradError: a pattern of the schema takes too long on this value.
        """
        if self.reference_is == "schema":
            check_schema(reference, TaskError)
        if self.reference_is == "value":
            _check_value(reference)
        try:
            value = read_json(final_text(completion), extract=self.extract)
        except NoAnswer as reason:
            return Verdict.unparsable(str(reason))
        problem = ""
        if self.schema is not None:
            problem = violation(value, self.schema)
        if self.reference_is == "schema":
            problem = problem or violation(value, reference)
        if self.reference_is == "value" and not problem and not same_json(reference, value):
            problem = f"the value is {json.dumps(value):.80}; expected {reference!r:.80}"
        return Verdict.scored(0.0 if problem else 1.0, problem)


def read_json(text: str, *, extract: bool = False) -> Any:
    """The JSON value that a text is, or that stands in it.

    Raises:
        NoAnswer: it is not JSON; there is none in it, or more than one.
    """
    value = _read(text.strip().removeprefix("\N{BYTE ORDER MARK}").strip(), extract)
    if is_deeper(value, MOST_NESTED):
        raise NoAnswer(f"the JSON is nested more than {MOST_NESTED} deep")
    return value


def _read(text: str, extract: bool) -> Any:
    if not extract:
        return _parsed(text)
    fenced = _fenced(text)
    if fenced:
        return _only([_parsed(block.strip()) for block in fenced])
    try:
        return _parsed(text)
    except NoAnswer:
        return _only(_objects(text))


def _fenced(text: str) -> list[str]:
    """The blocks in fences that are marked as JSON, or not marked."""
    blocks: list[str] = []
    body: list[str] = []
    language: str | None = None
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if language is None:
            language = fence.group(1).lower() if fence else None
        elif fence and not fence.group(1):
            blocks += ["\n".join(body)] if language in ("", "json") else []
            body, language = [], None
        else:
            body.append(line)
    return blocks


def same_json(one: Any, other: Any) -> bool:
    """Are two values equal as JSON?"""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_json(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_json, one, other))
    return type(one) is type(other) and bool(one == other)


def _check_value(reference: Any) -> None:
    try:
        json.dumps(reference, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TaskError(
            f"the reference {reference!r:.80} is no JSON value, so nothing can equal it: {error}"
        ) from None
    if is_deeper(reference, MOST_NESTED):
        raise TaskError(
            f"the reference {reference!r:.80} is nested more than {MOST_NESTED} deep; answers that "
            "deep are not read"
        )


def is_deeper(value: Any, depth: int) -> bool:
    """Whether arrays and objects are nested more than so deep."""
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return any(isinstance(one, dict | list) for one in level)


def _only(values: list[Any]) -> Any:
    if not values:
        raise NoAnswer("there is no JSON object in the text")
    if not all(same_json(values[0], value) for value in values[1:]):
        raise NoAnswer(f"there are {len(values)} different JSON values in the text; expected one")
    return values[0]


def _objects(text: str) -> list[Any]:
    """The JSON objects of a prose text that stand in no other JSON value."""
    found: list[Any] = []
    at = failures = 0
    while (start := _next_bracket(text, at)) >= 0:
        try:
            value, at = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            if _OBJECT_START.match(text, start):
                raise NoAnswer(f"a JSON object in the text is broken: {error}") from None
            at = start + 1
            failures += 1
            if failures > _MOST_BRACKETS:
                raise NoAnswer("too many brackets in the text begin no JSON value") from None
        else:
            if isinstance(value, dict):
                found.append(value)
    return found


def _next_bracket(text: str, at: int) -> int:
    places = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
    return min(places, default=-1)


def _parsed(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"the text is not JSON: {error!s:.120}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.40} is out of range")
    return number


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return table


_DECODER = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_without_repeats
)
