"""What a task is, how it is split, and in which order its problems are drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Protocol, runtime_checkable

from verigrad.errors import TaskError
from verigrad.hashing import Purpose, stable_hash
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


@dataclass(frozen=True, kw_only=True)
class Split:
    """A task's problems on both sides of the held-out split."""

    training: tuple[Problem, ...] | Drawn
    """What may be trained on: all of it, or where it is drawn from."""

    held_out: tuple[Problem, ...]
    """What is only evaluated."""


def split(task: Task, share: float, held_out: int = 256) -> Split:
    """Hold problems out by a stable hash of their content, so that equal ones stay together.

    Args:
        task: the task.
        share: of the problems, in [0, 1); about this many are held out, decided one by one.
        held_out: how many of them to make for an endless task, at most; no two of one content.

    Raises:
        TaskError: nothing is left to train on, or to evaluate although ``share`` is above 0.
    """
    if isinstance(task, DividedTask):
        return task.divide(share, held_out)
    if isinstance(task, EndlessTask):
        return _split_endless(task, share, held_out)
    if not isinstance(task, FiniteTask):
        raise TaskError(
            f"task {task.name!r} is a {type(task).__name__} without __len__ and __getitem__, and "
            "without problem(seed, index); it needs the first two, or the last one"
        )
    problems = [task[index] for index in range(len(task))]
    result = Split(
        training=tuple(p for p in problems if not is_held_out(p, share)),
        held_out=tuple(p for p in problems if is_held_out(p, share)),
    )
    if not result.training or (share > 0 and not result.held_out):
        empty = "to train on" if not result.training else "held out"
        raise TaskError(
            f"task {task.name!r} has {len(problems)} problems, and with task.held_out = {share} "
            f"none is {empty}; add problems or change task.held_out (0 holds none out)"
        )
    return result


def is_held_out(problem: Problem, share: float) -> bool:
    """Whether a problem is held out; its content alone decides."""
    return stable_hash(Purpose.HELD_OUT, problem.content_key) < share * 2.0**64


LOOKED_AT = 64
"""Problems of a task without end that are looked at before a run."""


def first_problems(training: Sequence[Problem] | Drawn, seed: int) -> Sequence[Problem]:
    """What is trained on: all of it, or the first draws where it has no end."""
    if isinstance(training, Sequence):
        return training
    drawn = (training.at(seed, position) for position in range(LOOKED_AT))
    return list({problem.id: problem for problem in drawn}.values())


MOST_TRIES = 1000
"""Problems in a row that may be on the wrong side of the split, or known already."""


def _split_endless(task: EndlessTask, share: float, held_out: int) -> Split:
    """The held-out problems are the first ones of seed 0, whatever the seed of the run is."""
    found: dict[str, Problem] = {}
    tries = 0
    for index in count():
        if not share or len(found) == held_out or tries == MOST_TRIES:
            break
        problem = task.problem(0, index)
        tries += 1
        if is_held_out(problem, share) and problem.content_key not in found:
            found[problem.content_key] = problem
            tries = 0
    if share and held_out and not found:
        raise TaskError(
            f"task {task.name!r} made {MOST_TRIES} problems, and with task.held_out = {share} none "
            "of them is held out; raise task.held_out, or set it to 0, which holds none out"
        )
    return Split(training=_EndlessTraining(task, share), held_out=tuple(found.values()))


@dataclass(frozen=True)
class _EndlessTraining:
    """The problems of an endless task that are not held out."""

    task: EndlessTask
    share: float

    def at(self, seed: int, position: int) -> Problem:
        """The problem whose index is the position; in the place of a held-out one, another."""
        index = position
        for attempt in range(MOST_TRIES):
            problem = self.task.problem(seed, index)
            if not is_held_out(problem, self.share):
                return problem
            # Near the position, so that an index that means how far a run is keeps its meaning.
            index = stable_hash(seed, Purpose.ORDER, position, attempt) % (position + MOST_TRIES)
        raise TaskError(
            f"task {self.task.name!r} made {MOST_TRIES} problems, and with task.held_out = "
            f"{self.share} all of them are held out; lower task.held_out, or make more problems"
        )


def problem_at(problems: Sequence[Problem] | Drawn, seed: int, position: int) -> Problem:
    """The problem at a position of the endless order in which a run draws them.

    Each epoch shuffles all problems of a sequence anew, so that each is drawn equally often.
    Depends on its arguments only.
    """
    if not isinstance(problems, Sequence):
        return problems.at(seed, position)
    epoch, place = divmod(position, len(problems))
    return problems[_epoch_order(len(problems), seed, epoch)[place]]


@lru_cache(maxsize=2)
def _epoch_order(size: int, seed: int, epoch: int) -> list[int]:
    return sorted(range(size), key=lambda index: stable_hash(seed, Purpose.ORDER, epoch, index))
