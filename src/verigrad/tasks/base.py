"""What a task is, and what its split is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from verigrad.errors import TaskError
from verigrad.types import Problem
from verigrad.verifiers import Verifier
from verigrad.verifiers.solutions import as_text, solution_of


class Task(Protocol):
    """Problems with a name, and the verifier that scores them.

    A task is a FiniteTask or an EndlessTask: its problems are listed, or made when they are drawn.

    A task whose verifier does not give full marks to a reference as text says what does: by a
    method ``solution(problem) -> str | None``, a completion that is right or None where there is
    none, or by an ``answer`` in the metadata of its problems.
    """

    @property
    def name(self) -> str:
        """Shown to people, and part of the default run folder."""
        ...

    @property
    def verifier(self) -> Verifier:
        """Checks the completions of every problem."""
        ...


@runtime_checkable
class FiniteTask(Task, Protocol):
    """A collection of problems that is indexed."""

    def __len__(self) -> int:
        """How many problems there are."""
        ...

    def __getitem__(self, index: int, /) -> Problem:
        """The problem at an index; the same one every time."""
        ...


@runtime_checkable
class EndlessTask(Task, Protocol):
    """Problems without end, each made when it is drawn."""

    def problem(self, seed: int, index: int) -> Problem:
        """The problem of a seed and an index from 0: the same one every time, in every process.

        Problems of the same id are the same. Contents may come again; each id names the content.
        """
        ...


@runtime_checkable
class DividedTask(Task, Protocol):
    """A task that holds problems out in its own way, as one that is made of others does."""

    def divide(self, share: float, held_out: int) -> "Split":
        """Do as ``split`` does."""
        ...


def check_is_problem(task: str, index: int, item: object) -> None:
    """Refuse an item of a task that is no problem.

    Raises:
        TaskError: names the task and the item.
    """
    if not isinstance(item, Problem):
        raise TaskError(
            f"task {task!r}: item {index} is a {type(item).__name__}; expected a verigrad.Problem"
        )


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
        """Refuse what is no list of problems, an empty one, and ids that name two problems."""
        if not hasattr(self.problems, "__len__"):
            raise TaskError(
                f"task {self.name!r}: its problems are a {type(self.problems).__name__}, which can "
                "be gone through once only; give a list"
            )
        if not self.problems:
            raise TaskError(f"task {self.name!r} holds no problem; it needs at least one")
        seen: dict[str, int] = {}
        for index, problem in enumerate(self.problems):
            check_is_problem(self.name, index, problem)
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


@dataclass(frozen=True)
class FunctionTask:
    """An endless task from a function of a seed and an index.

    Example:
        def double(seed: int, index: int) -> Problem:
            return Problem(id=f"{index}", prompt=f"Double {index}.", reference=2 * index)

        FunctionTask("double", double, last_number)
    """

    name: str
    function: Callable[[int, int], Problem]
    verifier: Verifier

    def problem(self, seed: int, index: int) -> Problem:
        """The problem of a seed and an index."""
        return self.function(seed, index)


class Drawn(Protocol):
    """Problems to train on that are made when they are drawn."""

    def at(self, seed: int, position: int) -> Problem:
        """The problem at a position of the order in which a run draws."""
        ...


def solution_of_problem(task: Task, problem: Problem) -> str | None:
    """A completion that must get full marks, or None where a reference cannot be written as one."""
    own: Callable[[Problem], str | None] | None = getattr(task, "solution", None)
    if own is not None:
        return own(problem)
    answer = as_text(problem.metadata.get("answer"))
    return solution_of(task.verifier, problem.reference) if answer is None else answer


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

    training: Sequence[Problem] | Drawn
    """What may be trained on: all of it, or where it is drawn from."""

    held_out: Sequence[Problem]
    """What is only evaluated."""


LOOKED_AT = 64
"""Problems of a task without end that are looked at before a run."""


def first_problems(training: Sequence[Problem] | Drawn, seed: int) -> Sequence[Problem]:
    """What is trained on: all of it, or the first draws where it has no end."""
    if isinstance(training, Sequence):
        return training
    drawn = (training.at(seed, position) for position in range(LOOKED_AT))
    return list({problem.id: problem for problem in drawn}.values())
