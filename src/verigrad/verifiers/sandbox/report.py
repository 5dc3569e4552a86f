"""From the lines a program's process reported to values. Any of them may be forged or cut off.

A forged value gains nothing: the process that could forge it has never seen the expected one.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """A value that is not plain data; equal to nothing."""

    kind: str
    """The name of its type."""

    def __repr__(self) -> str:
        return f"<{self.kind}>"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a process said about its program."""

    values: tuple[Any, ...] = ()
    """Of its calls, as far as it got."""

    completed: bool = False
    """It got to the end."""

    detail: str = ""
    """Why it did not."""

    error: str = ""
    """The name of the error that the program raised."""


def read_report(text: bytes, mark: str) -> Report:
    """Understand what a process reported; at the first thing out of place, reading ends.

    Args:
        text: its lines.
        mark: what each of them must start with.
    """
    values: list[Any] = []
    for line in text.splitlines():
        found = _entry(line, mark)
        if found is None:
            return Report(values=tuple(values), detail="something else wrote to its report")
        kind, content = found
        if kind != "value":
            return Report(
                values=tuple(values),
                completed=kind in ("done", "started"),
                detail=_SAID[kind](content),
                error=content["raised"] if kind == "raised" else "",
            )
        values.append(content)
    return Report(values=tuple(values), detail="it ended before its report did")


def _entry(line: bytes, mark: str) -> tuple[str, Any] | None:
    """What a line says, if it can be one of ours."""
    found, _, said = line.partition(b" ")
    if found.decode("utf-8", "replace") != mark:
        return None
    try:
        entry = json.loads(said)
        (kind,) = {"value", *_SAID} & entry.keys()
        if kind == "value":
            return kind, decode(entry[kind])
        _SAID[kind](entry)
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError):
        return None
    return kind, entry


_SAID: dict[str, Callable[[Any], str]] = {
    "started": lambda _: "",
    "done": lambda _: "",
    "raised": lambda e: f"it raised {e['raised']:.80} in line {e['line']:d}",
    "syntax": lambda e: f"it does not compile: {e['syntax']:.200}",
    "too_big": lambda _: "a value takes too much room",
}


def decode(written: Any) -> Any:
    """A value from its JSON.

    Raises:
        ValueError, TypeError, KeyError: it is not the JSON of a value.
    """
    if isinstance(written, dict):
        raise TypeError("an object of JSON is not a value here")
    if not isinstance(written, list):
        return written
    kind, *items = written
    return _DECODED[kind](items)


def _all(items: list[Any]) -> list[Any]:
    return [decode(item) for item in items]


_DECODED: dict[str, Callable[[list[Any]], Any]] = {
    "list": _all,
    "tuple": lambda items: tuple(_all(items)),
    "set": lambda items: set(_all(items)),
    "frozenset": lambda items: frozenset(_all(items)),
    "dict": lambda items: dict(_all(items)),
    "int": lambda items: int(items[0], 16),
    "float": lambda items: float(items[0]),
    "bytes": lambda items: bytes.fromhex(items[0]),
    "complex": lambda items: complex(*_all(items)),
    "other": lambda items: Opaque(str(items[0])),
}
