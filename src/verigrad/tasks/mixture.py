"""Several tasks as one, drawn in proportion to their weights."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

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

    def divide(self, share: float, held_out: int) -> Split:
        """Split each part by itself, and alternate."""
        splits = [split(part.task, share, held_out) for part in self.parts]
        weights = tuple(part.weight for part in self.parts)
        training = tuple(each.training for each in splits)
        most = min(held_out, sum(len(each.held_out) for each in splits))
        kept: list[Problem] = []
        position = 0
        while len(kept) < most:
            part, place = _turn(weights, 0, position)
            if place < len(splits[part].held_out):
                kept.append(_as_part(splits[part].held_out[place], self.names[part]))
            position += 1
        return Split(training=_MixedTraining(self.names, weights, training), held_out=tuple(kept))


@dataclass(frozen=True)
class _MixedTraining:
    """The training problems of all parts."""

    names: tuple[str, ...]
    weights: tuple[int, ...]
    training: tuple[Sequence[Problem] | Drawn, ...]

    def at(self, seed: int, position: int) -> Problem:
        """The problem of the part whose turn it is: its next one, in its own order."""
        part, place = _turn(self.weights, seed, position)
        return _as_part(problem_at(self.training[part], seed, place), self.names[part])


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


def by_part(task: Task, problems: Iterable[Problem]) -> list[tuple[Task, list[Problem]]]:
    """A task with its problems; of a mixture, each part with those that come from it.

    Args:
        task: any.
        problems: its problems. Those of a mixture stay as they are, references included: it is the
            mixture's verifier that understands them.
    """
    every = list(problems)
    if not isinstance(task, Mixture):
        return [(task, every)]
    return [
        (_AlonePart(part.task), [p for p in every if p.reference[TASK] == part.task.name])
        for part in task.parts
    ]


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
