"""Completions whose reward a person has decided, in a JSONL file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verigrad.errors import UserError
from verigrad.tasks.data.json_text import BadJsonError, parse_json, plain
from verigrad.tasks.data.lines import lines_of, text_of

KEYS = ("completion", "reference", "reward")


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A completion and the reward it should get.

    Example:
        {"completion": "It is 19.", "reference": 19, "reward": 1}
    """

    row: int
    """The line of the file, from 1."""

    completion: str
    reference: Any
    reward: float


def read_examples(file: Path) -> list[Example]:
    """Read labelled examples; empty lines are left out.

    Args:
        file: one JSON object a line, with the keys completion (text), reference (anything) and
            reward (a number, or true and false for 1 and 0).

    Raises:
        UserError: the file cannot be read, or a line is not as described; names the line.
    """
    examples = [
        _example(text_of(line.content, line.number, str(file)), line.number, file)
        for line in lines_of(file, str(file))
        if line.content.strip()
    ]
    if not examples:
        raise UserError(f"{file}: there is no example in it; expected one JSON object a line")
    return examples


def examples_of(name: str, names: Sequence[str], examples: Sequence[Example]) -> list[Example]:
    """The examples for one part of a mixture, whose name their references hold as "task".

    Args:
        name: the part's.
        names: those of all parts.
        examples: for any of them.

    Raises:
        UserError: the reference of an example names no part; names the line.
    """
    found = []
    for example in examples:
        reference = example.reference
        part = reference.get("task") if isinstance(reference, dict) else None
        if part not in names or "reference" not in reference:
            raise UserError(
                f"line {example.row} of the examples has the reference {reference!r:.60}; for a "
                'mixture it is a table of "task", one of ' + ", ".join(names) + ', and "reference"'
            )
        if part == name:
            found.append(example)
    return found


def _example(line: str, row: int, file: Path) -> Example:
    try:
        content = plain(parse_json(line.strip()))
    except BadJsonError as error:
        raise UserError(f"{file}:{row}: is not JSON: {error.reason}") from error
    if not isinstance(content, dict) or content.keys() != set(KEYS):
        found = ", ".join(content) if isinstance(content, dict) else type(content).__name__
        raise UserError(f"{file}:{row}: holds {found}; expected the keys {', '.join(KEYS)}")
    reward, completion = content["reward"], content["completion"]
    if not isinstance(reward, int | float) or not math.isfinite(reward):
        raise UserError(f"{file}:{row}: reward is {reward!r:.60}; expected a number")
    if not isinstance(completion, str):
        raise UserError(f"{file}:{row}: completion is {completion!r:.60}; expected text")
    return Example(
        row=row, completion=completion, reference=content["reference"], reward=float(reward)
    )
