"""Finds the program in a completion.

A program stands in a fenced block, or the whole text is one. Of several blocks the last that
defines what is asked for counts, as the last word on it. Nothing is compiled here: where it is
unclear at which fence a block ends, the sandbox is given each reading, and takes the first that
compiles.
"""

import re
import textwrap
from dataclasses import dataclass

from verigrad.verifiers.answer import NoAnswer, final_text

_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})[ \t]*([^\n`]*)$")
_TAGS = {"python", "py", "python3", "py3", "python2", "pycon", "ipython", "ipython3"}
_ANSWER_TAG = re.compile(r"^[ \t]*</?answer>|</?answer>[ \t]*$", re.MULTILINE)
_INNER_FENCE = re.compile(r"(?<=[^\s`~>])[ \t]*(```[ \t]*(?:python|py)3?[ \t]*)$", re.MULTILINE)
_START = re.compile(r"^(?:def |class |import |from |async def |@)", re.MULTILINE)

MOST_READINGS = 4
"""How many closing fences are tried for one block."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A program in a completion."""

    sources: tuple[str, ...]
    """What its text may be, in order of preference."""

    fenced: bool
    """Whether it was marked as code; text that was not may be no program at all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Block:
    tag: str
    readings: tuple[str, ...]

    @property
    def is_python(self) -> bool:
        return self.tag in _TAGS

    def defines(self, name: str) -> bool:
        return defines(self.readings[0], name)


def defines(source: str, name: str) -> bool:
    """Whether a program defines a name at its outermost level, by the look of it."""
    said = rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^{name}[ \t]*(?::[^=\n]+)?=[^=]"
    return re.search(said, source, re.MULTILINE) is not None


def find_program(completion: str, wanted: tuple[str, ...] = ()) -> Found:
    """The program of a completion.

    Args:
        completion: the text.
        wanted: names, any of which the program is to define; none for a script.

    Raises:
        NoAnswer: there is nothing in it that could be a program.
    """
    text = final_text(completion).replace("\r\n", "\n").replace("\ufeff", "")
    # Tags of the layout stand alone, and a sentence may end in the fence that opens a block.
    text = _INNER_FENCE.sub(r"\n\1", _ANSWER_TAG.sub("\n", text))
    blocks = _blocks(text)
    if not blocks:
        if not text.strip():
            raise NoAnswer("the completion is empty")
        return Found(sources=_bare(text), fenced=False)
    fitting = [block for block in blocks if block.is_python or not block.tag]
    if not fitting:
        raise NoAnswer(f"its only code is marked as {blocks[-1].tag}, not as Python")
    defining = [block for block in fitting if any(block.defines(name) for name in wanted)]
    tagged = [block for block in fitting if block.is_python]
    return Found(sources=(defining or tagged or fitting)[-1].readings, fenced=True)


def _bare(text: str) -> tuple[str, ...]:
    """Text without blocks: all of it, or from the first line that starts like a program."""
    start = _START.search(text)
    return (text,) if start is None or start.start() == 0 else (text, text[start.start() :])


def _blocks(text: str) -> list[_Block]:
    lines = text.split("\n")
    fences = [(row, match) for row, line in enumerate(lines) if (match := _FENCE.match(line))]
    blocks: list[_Block] = []
    after = -1
    for place, (row, match) in enumerate(fences):
        if row <= after:
            continue
        fence, words = match.group(1), match.group(2).split()
        ends = [
            end
            for end, other in fences[place + 1 :]
            if other.group(1).startswith(fence) and not other.group(2).strip()
        ]
        tag = words[0].lower().strip("{.}") if words else ""
        if not ends and not tag and not blocks:
            return _around_lone_fence(lines, row)
        after = ends[0] if ends else len(lines)
        # What closes this block may also open the next, so later ends are second thoughts.
        readings = [_body(lines, row, end) for end in ends[:MOST_READINGS] or [len(lines)]]
        if readings[0].strip():
            blocks.append(_Block(tag=tag, readings=tuple(readings)))
    return blocks


def _body(lines: list[str], start: int, end: int) -> str:
    return textwrap.dedent("\n".join(lines[start + 1 : end])) + "\n"


def _around_lone_fence(lines: list[str], row: int) -> list[_Block]:
    """A single fence that names no language may end a program as well as begin one."""
    sides = ("\n".join(lines[:row]) + "\n", _body(lines, row, len(lines)))
    return [_Block(tag="", readings=(side,)) for side in sides if side.strip()]
