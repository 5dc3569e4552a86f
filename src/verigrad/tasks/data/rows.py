"""Files of rows: read through once, or one row at a time from where it begins.

A row of JSON Lines is a line, that of a JSON array an element, and that of CSV a record, which goes
on over line ends in quotes. Each is found again by its offset and length in bytes.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from verigrad.config.checks import shown
from verigrad.errors import TaskError
from verigrad.tasks.data.json_text import BadJsonError, parse_json
from verigrad.tasks.data.lines import LONGEST, Line, lines_of, text_of

Row = dict[str, Any]
"""The values of a row by its columns."""

BLOCK = 1 << 20
_MARKS = re.compile(rb'["\\\[\]{},]')


class RowFile(Protocol):
    """A file whose rows can be read."""

    @property
    def path(self) -> Path:
        """Where it is."""
        ...

    @property
    def label(self) -> str:
        """What messages call it."""
        ...

    @property
    def noun(self) -> str:
        """What messages count: "line" of a text file, or "row" of another."""
        ...

    def scan(self) -> Iterator[tuple[Line, Row]]:
        """Every row, in order, with where it stands.

        Raises:
            TaskError: a row cannot be read; names the line.
        """
        ...

    def parse(self, line: Line) -> Row:
        """The row of what stands at a place.

        Raises:
            TaskError: as scan does.
        """
        ...


@dataclass(frozen=True)
class JsonLines:
    """One JSON object a line; empty lines do not count."""

    path: Path
    label: str
    noun: str = "line"

    def scan(self) -> Iterator[tuple[Line, Row]]:
        """Every row."""
        for line in lines_of(self.path, self.label):
            if line.content.strip():
                yield line, self.parse(line)

    def parse(self, line: Line) -> Row:
        """The object of a line."""
        return _object(line, self.label, self.noun)


@dataclass(frozen=True)
class JsonArray:
    """One JSON array of objects."""

    path: Path
    label: str
    noun: str = "line"

    def scan(self) -> Iterator[tuple[Line, Row]]:
        """Every element."""
        number, after, is_whole = 1, 0, False
        with self.path.open("rb") as file:
            for start, end, is_whole in _elements(self.path):
                file.seek(after)
                number += file.read(start - after).count(b"\n")
                content = file.read(end - start)
                row = content.lstrip()
                number += content[: len(content) - len(row)].count(b"\n")
                if row or not is_whole or after:
                    line = Line(end - len(row), number, row)
                    yield line, self.parse(line)
                number += row.count(b"\n")
                after = end
            file.seek(after + 1)
            if not is_whole or file.read(BLOCK).strip():
                raise TaskError(
                    f"{self.label}: after line {number}, "
                    + ("something follows the array" if is_whole else "the array is not closed")
                    + "; expected one JSON array of objects, whole (the file may be cut off)"
                )

    def parse(self, line: Line) -> Row:
        """The object of an element."""
        return _object(line, self.label, self.noun)


@dataclass(frozen=True)
class Table:
    """CSV, or values separated by tabs, below a line of column names; every value is text."""

    path: Path
    label: str
    delimiter: str
    noun: str = "line"

    def scan(self) -> Iterator[tuple[Line, Row]]:
        """Every record below the names."""
        for line, cells in islice(self._records(), 1 if self.columns else 0, None):
            yield line, self._row(cells, line.number)

    def parse(self, line: Line) -> Row:
        """The row of one record."""
        text = text_of(line.content, line.number, self.label)
        cells = next(csv.reader(StringIO(text, newline="\n"), delimiter=self.delimiter), [])
        return self._row(cells, line.number)

    @cached_property
    def columns(self) -> list[str]:
        """The names of the first line.

        Raises:
            TaskError: there is none, or a name stands there twice.
        """
        _, cells = next(self._records(), (None, []))
        names = [cell.strip() for cell in cells]
        for name in names:
            if name and names.count(name) > 1:
                raise TaskError(
                    f"{self.label}: line 1 names the column {shown(name)} twice; name each once"
                )
        return names

    def _row(self, cells: list[str], number: int) -> Row:
        if len(cells) != len(self.columns):
            raise TaskError(
                f"{self.label}: line {number} has {len(cells)} values, but the first line names "
                f"{len(self.columns)} columns ({', '.join(self.columns)}); put a value that holds "
                f"a {'tab' if self.delimiter == chr(9) else 'comma'} or a line end in quotes"
            )
        return dict(zip(self.columns, cells, strict=True))

    def _records(self) -> Iterator[tuple[Line, list[str]]]:
        """The cells of each record, empty ones left out, with the lines they stand on."""
        taken: list[Line] = []
        csv.field_size_limit(LONGEST)
        reader = csv.reader(self._texts(taken), delimiter=self.delimiter, strict=True)
        while True:
            try:
                cells = next(reader, None)
            except csv.Error as error:
                raise TaskError(
                    f"{self.label}: line {taken[0].number} is no row of values ({error}); a value "
                    'in quotes ends with one, and a quote within it is written twice: ""'
                ) from None
            if cells is None:
                return
            if any(cell.strip() for cell in cells) or len(cells) > 1:
                content = b"".join(line.content for line in taken)
                yield Line(taken[0].offset, taken[0].number, content), cells
            taken.clear()

    def _texts(self, taken: list[Line]) -> Iterator[str]:
        for line in lines_of(self.path, self.label):
            taken.append(line)
            yield text_of(line.content, line.number, self.label)


def _object(line: Line, label: str, noun: str) -> Row:
    """The JSON object that stands at a place."""
    try:
        text = text_of(line.content, line.number, label).strip()
        if not text:
            raise BadJsonError("there is a comma too many")
        value = parse_json(text)
    except BadJsonError as error:
        place = f", character {error.character}" if error.character else ""
        raise TaskError(
            f"{label}: {noun} {line.number + error.line}{place}: {error.reason}; expected a JSON "
            'object, such as {"prompt": "What is 12 + 7?", "answer": 19}'
        ) from None
    if not isinstance(value, dict):
        raise TaskError(
            f"{label}: {noun} {line.number} is {said(value)}; expected an object, such as "
            '{"prompt": "What is 12 + 7?", "answer": 19} (an array of objects is a .json file)'
        )
    return value


def said(value: object) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return f"{'the text' if isinstance(value, str) else 'the number'} {shown(value)}"


def _elements(path: Path) -> Iterator[tuple[int, int, bool]]:
    """Where each element of an array begins and ends, in bytes, and whether it is the last."""
    depth, start = 0, 0
    for place, sign in _signs(path):
        if depth == 0 and start:
            break
        if depth == 1 and sign in b",]":
            yield start, place, sign == b"]"
            start = place + 1
        if sign in b"[{":
            depth += 1
            start = start or place + 1
        elif sign in b"]}":
            depth -= 1


def _signs(path: Path) -> Iterator[tuple[int, bytes]]:
    """Brackets, braces and commas outside of texts, with their places in the file."""
    in_text, escaped, offset = False, -1, 0
    for line in _blocks(path):
        for mark in _MARKS.finditer(line):
            place, sign = offset + mark.start(), mark.group()
            if place == escaped:
                continue
            if sign == b"\\":
                escaped = place + 1
            elif sign == b'"':
                in_text = not in_text
            elif not in_text:
                yield place, sign
        offset += len(line)


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block
