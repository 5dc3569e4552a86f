"""What a task is, how it is split, and in which order its problems are drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from verigrad.errors import TaskError
from verigrad.hashing import Purpose, stable_hash
from verigrad.types import Problem
from verigrad.verifiers import Verifier
from verigrad.verifiers.solutions import solution_of


class Task(Protocol):
    """A named, indexable, finite collection of problems, and the verifier that scores them.

    A task whose verifier does not give full marks to a reference as text also has a method
    ``solution(problem) -> str | None``: a completion that is right, or None where there is none.
    """

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
    solution: Callable[[Problem], str | None] | None = None
    """Writes a completion that is right; without it the verifier or the reference's text does."""

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


def solution_of_problem(task: Task, problem: Problem) -> str | None:
    """A completion that must get full marks, or None where a reference cannot be written as one."""
    own: Callable[[Problem], str | None] | None = getattr(task, "solution", None)
    return solution_of(task.verifier, problem.reference) if own is None else own(problem)


@dataclass(frozen=True, kw_only=True)
class Split:
    """A task's problems on both sides of the held-out split."""

    training: tuple[Problem, ...]
    """What may be trained on."""

    held_out: tuple[Problem, ...]
    """What is only evaluated."""


def split(task: Task, share: float) -> Split:
    """Hold problems out by a stable hash of their content, so that equal ones stay together.

    Args:
        task: the task.
        share: of the problems, in [0, 1); about this many are held out, decided one by one.

    Raises:
        TaskError: nothing is left to train on, or to evaluate although ``share`` is above 0.
    """
    problems = [task[index] for index in range(len(task))]
    held = [stable_hash(Purpose.HELD_OUT, p.content_key) < share * 2.0**64 for p in problems]
    result = Split(
        training=tuple(p for p, out in zip(problems, held, strict=True) if not out),
        held_out=tuple(p for p, out in zip(problems, held, strict=True) if out),
    )
    if not result.training or (share > 0 and not result.held_out):
        empty = "to train on" if not result.training else "held out"
        raise TaskError(
            f"task {task.name!r} has {len(problems)} problems, and with task.held_out = {share} "
            f"none is {empty}; add problems or change task.held_out (0 holds none out)"
        )
    return result


def problem_at(problems: Sequence[Problem], seed: int, position: int) -> Problem:
    """The problem at a position of the endless order in which a run draws them.

    Each epoch shuffles all problems anew, so that each is drawn equally often. Depends on its
    arguments only.
    """
    epoch, place = divmod(position, len(problems))
    return problems[_epoch_order(len(problems), seed, epoch)[place]]


@lru_cache(maxsize=2)
def _epoch_order(size: int, seed: int, epoch: int) -> list[int]:
    return sorted(range(size), key=lambda index: stable_hash(seed, Purpose.ORDER, epoch, index))
