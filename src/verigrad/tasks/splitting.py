"""How a task is split, and in which order its problems are drawn."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Literal

from verigrad.errors import TaskError
from verigrad.hashing import Purpose, stable_hash
from verigrad.tasks.base import DividedTask, Drawn, EndlessTask, FiniteTask, Prepared, Split, Task
from verigrad.types import Problem


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
    result = task.split(share) if isinstance(task, Prepared) else _split(task, share)
    if not result.training or (share > 0 and not result.held_out):
        empty = "to train on" if not result.training else "held out"
        raise TaskError(
            f"task {task.name!r} has {len(task)} problems, and with task.held_out = {share} "
            f"none is {empty}; add problems or change task.held_out (0 holds none out)"
        )
    return result


def is_held_out(problem: Problem, share: float) -> bool:
    """Whether a problem is held out; its content alone decides."""
    return stable_hash(Purpose.HELD_OUT, problem.content_key) < share * 2.0**64


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


def _split(task: FiniteTask, share: float) -> Split:
    problems = [task[index] for index in range(len(task))]
    return Split(
        training=tuple(problem for problem in problems if not is_held_out(problem, share)),
        held_out=tuple(problem for problem in problems if is_held_out(problem, share)),
    )


def normalised(text: str) -> str:
    """A prompt without what makes no other question of it: case, white space, forms of letters."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


Order = Literal["shuffled", "file"]


def problem_at(
    problems: Sequence[Problem] | Drawn, seed: int, position: int, order: Order = "shuffled"
) -> Problem:
    """The problem at a position of the endless order in which a run draws them.

    Each epoch of a sequence draws every problem once: shuffled anew, or as they stand. Depends on
    its arguments only.
    """
    if not isinstance(problems, Sequence):
        return problems.at(seed, position)
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
