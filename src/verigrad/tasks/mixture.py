"""Several tasks as one, drawn in proportion to their weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import overload

from verigrad.errors import TaskError
from verigrad.hashing import Purpose, stable_hash
from verigrad.tasks.base import Drawn, Split, Task, solution_of_problem
from verigrad.tasks.splitting import problem_at, split
from verigrad.types import Problem
from verigrad.verifiers import Verifier
from verigrad.verifiers.mixed import PartVerifier

TASK = "task"
"""The name, in a problem's metadata and reference, of the part of a mixture that it comes from."""


@dataclass(frozen=True, slots=True)
class Part:
    """A task of a mixture."""

    weight: int
    """How many of its problems are drawn for every ``sum of all weights`` problems."""

    task: Task


@dataclass(frozen=True)
class Mixture:
    """A task whose problems come from others, in exact proportion to whole weights.

    Of each run of as many draws as the weights add up to, every part gets its weight's worth, in an
    order that the seed decides. The held-out problems alternate in the same way. A reference is a
    table, ``{"task": NAME, "reference": ...}``, so that the part's own verifier checks it.

    Example:
        Mixture((Part(2, addition), Part(1, countdown)))
    """

    parts: Sequence[Part]
    name: str = "mixture"

    def __post_init__(self) -> None:
        """Refuse a mixture of nothing, and two parts of one name."""
        names = [part.task.name for part in self.parts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not names:
            raise TaskError(
                f"a mixture has {f'two parts called {twice[0]!r}' if twice else 'no part'}; it "
                "needs at least one, each with a name of its own, which its metrics go by"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts."""
        return tuple(part.task.name for part in self.parts)

    @property
    def verifier(self) -> Verifier:
        """Checks a completion with the verifier of the part that its problem comes from."""
        return PartVerifier({part.task.name: part.task.verifier for part in self.parts})

    def solution(self, problem: Problem) -> str | None:
        """What the part that a problem comes from writes for it."""
        tasks = {part.task.name: part.task for part in self.parts}
        return _AlonePart(tasks[problem.reference[TASK]]).solution(problem)

    def divide(self, share: float, held_out: int) -> Split:
        """Split each part by itself, and alternate."""
        sides = [_of_part(split(part.task, share, held_out), part.task.name) for part in self.parts]
        weights = tuple(part.weight for part in self.parts)
        training = tuple(each.training for each in sides)
        most = min(held_out, sum(len(each.held_out) for each in sides))
        kept: list[Problem] = []
        position = 0
        while len(kept) < most:
            part, place = _turn(weights, 0, position)
            if place < len(sides[part].held_out):
                kept.append(sides[part].held_out[place])
            position += 1
        tasks = (_AlonePart(part.task) for part in self.parts)
        return _MixedSplit(
            training=_MixedTraining(weights, training),
            held_out=tuple(kept),
            parts=tuple(zip(tasks, sides, strict=True)),
        )


@dataclass(frozen=True, kw_only=True)
class _MixedSplit(Split):
    """The two sides of a mixture."""

    parts: tuple[tuple[Task, Split], ...]
    """Each part with all of its own sides, however rarely it is drawn."""


@dataclass(frozen=True)
class _MixedTraining:
    """The training problems of all parts."""

    weights: tuple[int, ...]
    training: tuple[Sequence[Problem] | Drawn, ...]

    def at(self, seed: int, position: int) -> Problem:
        """The problem of the part whose turn it is: its next one, in its own order."""
        part, place = _turn(self.weights, seed, position)
        return problem_at(self.training[part], seed, place)


def _of_part(sides: Split, name: str) -> Split:
    """The sides of a part, its problems as those of the mixture."""
    training = sides.training
    return Split(
        training=_PartProblems(training, name)
        if isinstance(training, Sequence)
        else _PartDrawn(training, name),
        held_out=_PartProblems(sides.held_out, name),
    )


@dataclass(frozen=True)
class _PartProblems(Sequence[Problem]):
    """Problems of a part as those of the mixture; none is read before it is asked for."""

    problems: Sequence[Problem]
    name: str

    def __len__(self) -> int:
        """How many there are."""
        return len(self.problems)

    @overload
    def __getitem__(self, index: int, /) -> Problem: ...
    @overload
    def __getitem__(self, index: slice, /) -> "_PartProblems": ...
    def __getitem__(self, index: int | slice, /) -> "Problem | _PartProblems":
        """One problem, or some of them."""
        if isinstance(index, slice):
            return _PartProblems(self.problems[index], self.name)
        return _as_part(self.problems[index], self.name)


@dataclass(frozen=True)
class _PartDrawn:
    """Problems of a part without end as those of the mixture."""

    problems: Drawn
    name: str

    def at(self, seed: int, position: int) -> Problem:
        """The problem at a position of the part's own order."""
        return _as_part(self.problems.at(seed, position), self.name)


@dataclass(frozen=True, slots=True)
class _AlonePart:
    """A part of a mixture as a task, whose problems are still those of the mixture."""

    task: Task

    @property
    def name(self) -> str:
        """That of the part."""
        return self.task.name

    @property
    def verifier(self) -> Verifier:
        """The part's own, which gets the part's own references only."""
        return self.task.verifier

    def solution(self, problem: Problem) -> str | None:
        """What the part writes for one of its problems."""
        reference = problem.reference["reference"]
        metadata = {key: value for key, value in problem.metadata.items() if key != TASK}
        if metadata.get("answer") is reference:
            del metadata["answer"]  # Of the mixture's making.
        return solution_of_problem(
            self.task, replace(problem, reference=reference, metadata=metadata)
        )


def by_part(task: Task, sides: Split) -> Sequence[tuple[Task, Split]]:
    """A task with its sides; of a mixture, each part with all that it has by itself.

    Args:
        task: any.
        sides: those of the task. Problems of a mixture stay its own, references included: it is the
            mixture's verifier that understands them.
    """
    return sides.parts if isinstance(sides, _MixedSplit) else [(task, sides)]


def _as_part(problem: Problem, name: str) -> Problem:
    """A problem with the name of its task, on the side of the split that it is on by itself."""
    return replace(
        problem,
        id=problem.id if problem.id.startswith(f"{name}/") else f"{name}/{problem.id}",
        reference={TASK: name, "reference": problem.reference},
        content=problem.content_key,
        metadata={"answer": problem.reference, **problem.metadata, TASK: name},
    )


def _turn(weights: tuple[int, ...], seed: int, position: int) -> tuple[int, int]:
    """Which part's turn it is at a position, and how often it has been before."""
    cycle, place = divmod(position, sum(weights))
    order = _cycle(weights, seed, cycle)
    part = order[place]
    return part, cycle * weights[part] + order[:place].count(part)


@lru_cache(maxsize=16)
def _cycle(weights: tuple[int, ...], seed: int, cycle: int) -> list[int]:
    """Each part as often as its weight says, in an order of this cycle's own."""

    def key(turn: tuple[int, int]) -> int:
        return stable_hash(seed, Purpose.ORDER, "mixture", cycle, *turn)

    turns = [(part, turn) for part, weight in enumerate(weights) for turn in range(weight)]
    return [part for part, _ in sorted(turns, key=key)]
