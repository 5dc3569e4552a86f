"""From the columns of a row to a problem: prompt, reference, id, and what is wrong with them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verigrad.config import DataConfig
from verigrad.config.checks import shown
from verigrad.errors import ConfigError, TaskError
from verigrad.tasks.data.cells import Cells, Template
from verigrad.tasks.data.json_text import BadJsonError, Written, parse_json, plain
from verigrad.tasks.data.rows import Row, said
from verigrad.tasks.splitting import normalised
from verigrad.types import Message, Problem

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What a row says, before a system prompt or examples stand before it."""

    id: str
    turns: tuple[Message, ...]
    """Chat messages, the last one the user's."""

    is_chat: bool
    """Whether they were chat messages in the file; text is one turn."""

    reference: Any
    content: str
    """The normalised prompt: rows of the same are on the same side of the held-out split."""

    metadata: Mapping[str, Any]

    def problem(self, name: str, before: tuple[Message, ...] = ()) -> Problem:
        """The problem that the row is.

        Args:
            name: its id.
            before: the turns that stand before every prompt.
        """
        as_chat = bool(before) or self.is_chat
        return Problem(
            id=name,
            prompt=(*before, *self.turns) if as_chat else self.turns[0]["content"],
            reference=self.reference,
            content=self.content,
            metadata=self.metadata,
        )


class Reader:
    """Makes items of rows, as a configuration says."""

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.prompt = Template.of(config.prompt, "data.prompt")
        self.answers = (config.answer,) if isinstance(config.answer, str) else config.answer
        if not self.answers:
            raise ConfigError("data.answer is an empty list; name the column of the answer")
        if config.answer_after is not None and not isinstance(config.answer, str):
            raise ConfigError("data.answer_after needs data.answer to be one column")
        self.shot = (
            Template.of(config.shot_answer, "data.shot_answer") if config.shot_answer else None
        )

    @property
    def column(self) -> str:
        """What the reference's column is called; "answer" where there are several."""
        return self.answers[0] if len(self.answers) == 1 else "answer"

    @property
    def columns(self) -> list[str]:
        """Every column that is needed."""
        named = [self.config.id] if self.config.id else []
        shot = self.shot.columns if self.shot and self.config.shots else []
        wanted = [*self.prompt.columns, *self.answers, *named, *shot, *self.config.json_columns]
        return list(dict.fromkeys(wanted))

    def item(self, row: Row, place: str) -> Item:
        """Read one row.

        Raises:
            TaskError: names the file, the line, the column, and what to do.
        """
        cells = Cells(row | self._parsed(row, place), place)
        turns, is_chat = self._turns(cells)
        if turns[0]["role"] == "system" and (self.config.system is not None or self.config.shots):
            raise TaskError(
                f"{place}: has a system message of its own, but data.system or data.shots stand "
                "before every prompt; leave them out, or take it out of the data"
            )
        reference = self._reference(cells)
        words = "\n".join(turn["content"] for turn in turns)
        used = {*self.prompt.columns, *self.answers, self.config.id}
        return Item(
            id=self._id(cells, words, reference),
            turns=turns,
            is_chat=is_chat,
            reference=reference,
            content=normalised(words),
            metadata={k: plain(value) for k, value in cells.row.items() if k not in used},
        )

    def solved(self, row: Row, place: str) -> tuple[Message, ...]:
        """The turns of an example, its answer among them.

        Raises:
            TaskError: as item does.
        """
        cells = Cells(row | self._parsed(row, place), place)
        if self.shot:
            answer = self.shot.fill(cells)
        elif len(self.answers) == 1:
            answer = cells.text(self.answers[0], "data.shots")
        else:
            raise ConfigError(
                "data.shots needs data.shot_answer where data.answer is several columns; it says "
                'what the examples are answered with, such as "{solution}"'
            )
        return (*self.item(row, place).turns, Message(role="assistant", content=answer))

    def _parsed(self, row: Row, place: str) -> Row:
        """The JSON columns, read where they are text."""
        parsed = {}
        for column in self.config.json_columns:
            cells = Cells(row, place)
            value = cells.value(column, "data.json_columns")
            if isinstance(value, str):
                try:
                    value = parse_json(value)
                except BadJsonError as error:
                    raise cells.wrong(
                        column,
                        f"is {shown(row[column])}, which is no JSON ({error.reason}); "
                        'data.json_columns expects a list or a table, such as ["f(1) == 1"]',
                    ) from None
            if not isinstance(value, list | dict):
                raise cells.wrong(
                    column, f"is {said(value)}; data.json_columns expects a list or a table"
                )
            parsed[column] = value
        return parsed

    def _turns(self, cells: Cells) -> tuple[tuple[Message, ...], bool]:
        column = self.prompt.column
        value = cells.value(column, "data.prompt") if column is not None else None
        if column is None or not isinstance(value, list):
            return (Message(role="user", content=self.prompt.fill(cells)),), False
        for turn in value:
            good = isinstance(turn, dict) and isinstance(turn.get("content"), str)
            if not good or turn.get("role") not in ROLES or not turn["content"].strip():
                raise cells.wrong(
                    column,
                    f"holds {shown(turn) if isinstance(turn, str) else said(turn)}; expected chat "
                    'messages such as {"role": "user", "content": "What is 12 + 7?"}, with the '
                    f"role {', '.join(ROLES)}",
                )
        cells.check_whole(column, value)
        if not value or value[-1]["role"] != "user":
            raise cells.wrong(column, "is a list whose last message is not the user's; end with it")
        return tuple(Message(role=turn["role"], content=turn["content"]) for turn in value), True

    def _reference(self, cells: Cells) -> Any:
        if not isinstance(self.config.answer, str):
            return {column: self._answer(cells, column) for column in self.answers}
        reference = self._answer(cells, self.config.answer)
        marker = self.config.answer_after
        if marker is None:
            return reference
        _, found, after = cells.text(self.config.answer, "data.answer").rpartition(marker)
        if not found or not after.strip():
            raise cells.wrong(
                self.config.answer,
                f"has nothing after {shown(marker)}, where data.answer_after expects the answer",
            )
        return after.strip()

    def _answer(self, cells: Cells, column: str) -> Any:
        """A reference: numbers keep the digits they are written with, as text where need be."""
        value = cells.value(column, "data.answer")
        if isinstance(value, list | dict):
            cells.check_whole(column, value)
            for number in _numbers(value):
                if not number.is_exact:
                    raise cells.wrong(
                        column,
                        f"holds the number {number.text}, of which a float keeps only "
                        f"{float(number)!r}; write it in quotes, as text",
                    )
            return plain(value)
        if isinstance(value, bool):
            return value
        text = cells.text(column, "data.answer")
        if isinstance(value, Written):
            return float(value) if repr(float(value)) == text else text
        return value

    def _id(self, cells: Cells, words: str, reference: Any) -> str:
        column = self.config.id
        if column is None:
            text = f"{words}\x1f{reference!r}"
            return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        value = cells.value(column, "data.id")
        if isinstance(value, bool | float | list | dict):
            raise cells.wrong(column, f"is {said(value)}; an id is text or a whole number")
        return cells.text(column, "data.id")


def _numbers(value: Any) -> Iterable[Written]:
    if isinstance(value, Written):
        yield value
    elif isinstance(value, list | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)
