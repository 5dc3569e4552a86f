"""What the tasks that make their problems share."""

from collections.abc import Callable
from itertools import count

from verigrad.tasks.base import FunctionTask
from verigrad.tasks.dice import Dice
from verigrad.types import Problem
from verigrad.verifiers import Verifier


def function_task(
    name: str, difficulty: int, make: Callable[[Dice], Problem | None], verifier: Verifier
) -> FunctionTask:
    """An endless task whose problem is the first that a function makes from dice.

    Args:
        name: of the task.
        difficulty: part of the dice's address, so that problems of two difficulties are unrelated.
        make: the problem of some dice, or None where they make no good one.
        verifier: checks the completions.
    """

    def problem(seed: int, index: int) -> Problem:
        for attempt in count():
            made = make(Dice(name, difficulty, seed, index, attempt))
            if made is not None:
                return made
        raise AssertionError("the dice are thrown until they make a problem")

    return FunctionTask(name, problem, verifier)
