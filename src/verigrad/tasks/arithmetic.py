"""Arithmetic expressions, to be worked out."""

from dataclasses import dataclass

from verigrad.tasks.base import FunctionTask
from verigrad.tasks.dice import Dice
from verigrad.tasks.making import function_task
from verigrad.types import Problem
from verigrad.verifiers import last_number

MOST_FACTOR = 12
"""Products have one operand of at most this, as the tables that people learn have."""


@dataclass(frozen=True, slots=True)
class Expression:
    """Text, what it is worth, and what is the same for expressions that differ in order only."""

    text: str
    value: int
    content: str
    numbers: tuple[int, ...]


def arithmetic(difficulty: int) -> FunctionTask:
    """Expressions with as many operations as the difficulty says, of numbers up to 10 times it.

    ``a + b`` and ``b + a`` are the same content. The answer is never one of the numbers asked
    about, so that repeating the question pays nothing.
    """

    def make(dice: Dice) -> Problem | None:
        found = expression(dice, difficulty, 10 * difficulty)
        if found.value in found.numbers:
            return None
        text = found.text.removeprefix("(").removesuffix(")")
        return Problem(
            id=f"arithmetic/{text.replace(' ', '')}",
            prompt=f"What is {text}? Answer with just the number.",
            reference=found.value,
            content=f"arithmetic/{found.content}",
        )

    return function_task("arithmetic", difficulty, make, last_number)


def expression(dice: Dice, operations: int, largest: int) -> Expression:
    """An expression with so many operations, of numbers from 1 to the largest."""
    if operations == 0:
        number = dice.number(1, largest)
        return Expression(str(number), number, str(number), (number,))
    on_the_left = dice.number(0, operations - 1)
    sign = dice.choice("+-*")
    left = expression(dice, on_the_left, largest)
    smaller = min(largest, MOST_FACTOR) if sign == "*" else largest
    right = expression(dice, operations - 1 - on_the_left, smaller)
    value = {"+": left.value + right.value, "-": left.value - right.value}.get(
        sign, left.value * right.value
    )
    sides = [left.content, right.content]
    # Only a difference depends on its order.
    content = sign.join(sides if sign == "-" else sorted(sides))
    return Expression(
        f"({left.text} {sign} {right.text})", value, f"({content})", left.numbers + right.numbers
    )
