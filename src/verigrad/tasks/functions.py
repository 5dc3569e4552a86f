"""Small Python functions to be written, with tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verigrad.hashing import stable_hash
from verigrad.tasks.base import FunctionTask
from verigrad.tasks.dice import Dice
from verigrad.tasks.making import function_task
from verigrad.types import Problem
from verigrad.verifiers import CodeVerifier

TESTS = 5
LONGEST_LIST = 8
LARGEST = 50


@dataclass(frozen=True, slots=True)
class Step:
    """What is done to a list of numbers: in words, as a line of Python, and as a function."""

    words: str
    code: str
    """An expression over ``items``."""

    function: Callable[[list[int]], Any]


NUMBERS = (
    Step("add up the numbers", "sum(items)", sum),
    Step("count the numbers", "len(items)", len),
    Step(
        "find the largest number, or 0 if there is none",
        "max(items, default=0)",
        lambda items: max(items, default=0),
    ),
    Step(
        "add up the squares of the numbers",
        "sum(x * x for x in items)",
        lambda items: sum(x * x for x in items),
    ),
)
"""The steps from a list to a number."""


def functions(difficulty: int) -> FunctionTask:
    """A function of a list of whole numbers, in as many steps as the difficulty says.

    The steps with their numbers are the content. Five tests, of lists of up to eight numbers, are
    made with the problem; they tell the function from one that returns its argument, and from one
    that always returns the same.
    """

    def make(dice: Dice) -> Problem | None:
        steps = [_list_step(dice) for _ in range(difficulty - 1)] + [_last_step(dice)]
        if len({step.words for step in steps}) < difficulty:
            return None
        lists = [
            [dice.number(-LARGEST, LARGEST) for _ in range(dice.number(3, LONGEST_LIST))]
            for _ in range(TESTS)
        ]
        expected = [_run(steps, items) for items in lists]
        if expected == lists or len({str(value) for value in expected}) < TESTS - 1:
            return None
        words = "; then ".join(step.words for step in steps)
        lines = [f"    items = {step.code}" for step in steps[:-1]]
        solution = "\n".join(["def solve(items):", *lines, f"    return {steps[-1].code}"])
        prompt = (
            f"Write a Python function solve(items) that takes a list of whole numbers: {words}. "
            "It returns the result."
        )
        tests = [
            {"args": [items], "expected": value}
            for items, value in zip(lists, expected, strict=True)
        ]
        return Problem(
            id=f"functions/{stable_hash(prompt, lists):016x}",
            prompt=prompt,
            reference={"entry": "solve", "tests": tests},
            content=f"functions/{words}",
            metadata={"answer": f"```python\n{solution}\n```"},
        )

    return function_task("functions", difficulty, make, CodeVerifier())


def _run(steps: list[Step], items: list[int]) -> Any:
    value: Any = items
    for step in steps:
        value = step.function(value)
    return value


def _list_step(dice: Dice) -> Step:
    """A step from a list to a list."""
    n = dice.number(2, 30)
    steps = (
        Step(
            f"keep the numbers that {n} divides",
            f"[x for x in items if x % {n} == 0]",
            lambda items: [x for x in items if x % n == 0],
        ),
        Step(
            f"keep the numbers greater than {n}",
            f"[x for x in items if x > {n}]",
            lambda items: [x for x in items if x > n],
        ),
        Step(
            f"multiply each number by {n}",
            f"[{n} * x for x in items]",
            lambda items: [n * x for x in items],
        ),
        Step(
            f"add {n} to each number",
            f"[x + {n} for x in items]",
            lambda items: [x + n for x in items],
        ),
        Step("reverse the list", "items[::-1]", lambda items: items[::-1]),
        Step("sort the numbers, smallest first", "sorted(items)", sorted),
    )
    return dice.choice(steps)


def _last_step(dice: Dice) -> Step:
    """A step that ends in a number, or in a list."""
    if dice.choice((True, False)):
        return _list_step(dice)
    return dice.choice(NUMBERS)
