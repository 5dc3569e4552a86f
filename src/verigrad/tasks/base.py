"""What a task is, how it is split, and in which order its problems are drawn."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol, runtime_checkable

from verigrad.errors import TaskError
from verigrad.hashing import Purpose, stable_hash
from verigrad.types import Problem
from verigrad.verifiers import Verifier


class Task(Protocol):
    """A named, indexable, finite collection of problems, and the verifier that scores them."""

    @property
    def name(self) -> str:
        """Shown to people, and part of the default run folder."""
        ...

    @property
    def verifier(self) -> Verifier:
        """Checks the completions of every problem."""
        ...

    def __len__(self) -> int:
        """How many problems there are."""
        ...

    def __getitem__(self, index: int, /) -> Problem:
        """The problem at an index; the same one every time."""
        ...


@dataclass(frozen=True)
class ProblemTask:
    """A task from a list of problems and a function.

    Example:
        ProblemTask("double", [Problem(id="3", prompt="Double 3.", reference=6)], last_number)
    """

    name: str
    problems: Sequence[Problem]
    verifier: Verifier

    def __post_init__(self) -> None:
        """Refuse an empty task and ids that name two problems."""
        if not self.problems:
            raise TaskError(f"task {self.name!r} holds no problem; it needs at least one")
        seen: dict[str, int] = {}
        for index, problem in enumerate(self.problems):
            if problem.id in seen:
                raise TaskError(
                    f"task {self.name!r}: problems {seen[problem.id]} and {index} have the same "
                    f"id {problem.id!r}; an id names one problem, so give each its own"
                )
            seen[problem.id] = index

    def __len__(self) -> int:
        """How many problems there are."""
        return len(self.problems)

    def __getitem__(self, index: int, /) -> Problem:
        """The problem at an index."""
        return self.problems[index]


@runtime_checkable
class Prepared(Protocol):
    """A task that has checked its problems itself, and is split without being read."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of its problems."""
        ...

    def split(self, share: float) -> "Split":
        """Hold problems out by the hash of their content, which is their normalised prompt."""
        ...


@dataclass(frozen=True, kw_only=True)
class Split:
    """A task's problems on both sides of the held-out split."""

    training: Sequence[Problem]
    """What may be trained on."""

    held_out: Sequence[Problem]
    """What is only evaluated."""


def split(task: Task, share: float) -> Split:
    """Hold problems out by a stable hash of their content, so that equal ones stay together.

    Args:
        task: the task.
        share: of the problems, in [0, 1); about this many are held out, decided one by one.

    Raises:
        TaskError: nothing is left to train on, or to evaluate although ``share`` is above 0.
    """
    result = task.split(share) if isinstance(task, Prepared) else _split(task, share)
    if not result.training or (share > 0 and not result.held_out):
        empty = "to train on" if not result.training else "held out"
        raise TaskError(
            f"task {task.name!r} has {len(task)} problems, and with task.held_out = {share} "
            f"none is {empty}; add problems or change task.held_out (0 holds none out)"
        )
    return result


def _split(task: Task, share: float) -> Split:
    problems = [task[index] for index in range(len(task))]
    held = [stable_hash(Purpose.HELD_OUT, p.content_key) < share * 2.0**64 for p in problems]
    return Split(
        training=tuple(p for p, out in zip(problems, held, strict=True) if not out),
        held_out=tuple(p for p, out in zip(problems, held, strict=True) if out),
    )


def normalised(text: str) -> str:
    """A prompt without what makes no other question of it: case, white space, forms of letters."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


Order = Literal["shuffled", "file"]


def problem_at(
    problems: Sequence[Problem], seed: int, position: int, order: Order = "shuffled"
) -> Problem:
    """The problem at a position of the endless order in which a run draws them.

    Each epoch draws every problem once: shuffled anew, or as they stand. Depends on its arguments
    only.
    """
    epoch, place = divmod(position, len(problems))
    if order == "file":
        return problems[place]
    if len(problems) > SORTED_AT_MOST:
        return problems[_permuted(len(problems), place, seed, Purpose.ORDER, epoch)]
    return problems[_epoch_order(len(problems), seed, epoch)[place]]


SORTED_AT_MOST = 2**16
"""An order of more problems is never written down."""


def _permuted(size: int, place: int, *key: object) -> int:
    """Where a place goes in a permutation that takes no memory.

    A Feistel network permutes the numbers below a power of four, and a number that it sends beyond
    the size is sent on until it falls below.
    """
    half = ((size - 1).bit_length() + 1) // 2
    low = (1 << half) - 1
    while True:
        left, right = place >> half, place & low
        for turn in range(4):
            left, right = right, left ^ (stable_hash(*key, turn, right) & low)
        place = left << half | right
        if place < size:
            return place


@lru_cache(maxsize=2)
def _epoch_order(size: int, seed: int, epoch: int) -> list[int]:
    return sorted(range(size), key=lambda index: stable_hash(seed, Purpose.ORDER, epoch, index))
