"""The cells of a row, and texts with columns in them."""

from collections.abc import Iterator
from dataclasses import dataclass
from string import Formatter
from typing import Any

from verigrad.config.checks import did_you_mean, shown
from verigrad.errors import ConfigError, TaskError
from verigrad.tasks.data.json_text import Written
from verigrad.tasks.data.rows import Row, said


@dataclass(frozen=True, slots=True)
class Cells:
    """A row, and what messages call its place: ``questions.jsonl: line 3``."""

    row: Row
    place: str

    def wrong(self, column: str, words: str) -> TaskError:
        """The error that names file, line and column."""
        return TaskError(f"{self.place}, column {shown(column)}: {words}")

    def value(self, column: str, key: str) -> Any:
        """What a column holds.

        Raises:
            TaskError: there is no such column, or it holds null.
        """
        if column not in self.row:
            hint = did_you_mean(column, self.row)
            raise self.wrong(
                column,
                f"is missing; {hint}the columns there are {', '.join(map(shown, self.row))}; "
                f"fill it in, or name another one in {key}",
            )
        value = self.row[column]
        if value is None:
            raise self.wrong(column, "is null; fill it in, or leave the row out")
        return value

    def text(self, column: str, key: str) -> str:
        """The text or number of a column, as it is written.

        Raises:
            TaskError: it is missing, empty, or something else.
        """
        value = self.value(column, key)
        if isinstance(value, bool | list | dict):
            raise self.wrong(column, f"is {said(value)}; {key} expects text or a number here")
        text = value.text if isinstance(value, Written) else str(value)
        if not text.strip():
            raise self.wrong(column, "is empty; fill it in, or leave the row out")
        self.check_whole(column, text)
        return text

    def check_whole(self, column: str, value: object) -> None:
        """Refuse half of a character in a text, or anywhere in a list or table: no file takes it.

        Raises:
            TaskError: there is one.
        """
        if any("\ud800" <= character <= "\udfff" for text in _texts(value) for character in text):
            raise self.wrong(column, "holds half of a character (a lone surrogate); repair it")


def _texts(value: object) -> Iterator[str]:
    """The texts in a value, names of tables among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            yield from _texts(part)


@dataclass(frozen=True, slots=True)
class Template:
    """A text with columns in it."""

    key: str
    """The key of the configuration that holds it."""

    parts: tuple[tuple[str, str | None], ...]
    """Text, and the column after it."""

    @classmethod
    def of(cls, text: str, key: str) -> "Template":
        """Read a template; a text without braces is the name of one column.

        Raises:
            ConfigError: its braces do not match, or hold more than a name.
        """
        if "{" not in text and "}" not in text:
            return cls(key, (("", text),))
        try:
            parts = list(Formatter().parse(text))
        except ValueError as error:
            raise ConfigError(
                f"{key} is {shown(text)}: {error}; {{ and }} hold the name of a column, and a "
                "brace itself is written twice: {{"
            ) from None
        for _, column, form, conversion in parts:
            if column == "" or form or conversion:
                raise ConfigError(
                    f"{key} is {shown(text)}; between {{ and }} stands the name of a column, and "
                    "nothing else; a brace itself is written twice: {{"
                )
        template = cls(key, tuple((before, column) for before, column, _, _ in parts))
        if not template.columns:
            raise ConfigError(
                f"{key} is {shown(text)}, which names no column, as {{question}} does"
            )
        return template

    @property
    def columns(self) -> list[str]:
        """The columns that it names."""
        return [column for _, column in self.parts if column is not None]

    @property
    def column(self) -> str | None:
        """The column that is all of it, if it is one."""
        return self.parts[0][1] if len(self.parts) == 1 and not self.parts[0][0] else None

    def fill(self, cells: Cells) -> str:
        """The text for a row.

        Raises:
            TaskError: a column is missing, empty, or neither text nor a number.
        """
        return "".join(
            before + (cells.text(column, self.key) if column is not None else "")
            for before, column in self.parts
        )
