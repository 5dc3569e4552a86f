"""Countdown: make a number from some others."""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from verigrad.tasks.base import FunctionTask
from verigrad.tasks.dice import Dice
from verigrad.tasks.making import function_task
from verigrad.types import Problem, Verdict
from verigrad.verifiers.answer import NoAnswer, final_text

LONGEST = 200
"""Characters; a longer expression is not read."""

LARGEST = 25
_SIGNS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_LOOKS = str.maketrans({"×": "*", "·": "*", "÷": "/", "\N{MINUS SIGN}": "-"})  # noqa: RUF001
_EXPRESSION = re.compile(r"[0-9(][0-9+*/() -]*[0-9)]")


def countdown(difficulty: int) -> FunctionTask:
    """One number more than the difficulty says, from 1 to 25, and a target that they make.

    The target is none of the numbers, and at most 999. The same numbers in another order are the
    same content.
    """

    def make(dice: Dice) -> Problem | None:
        numbers = [dice.number(1, LARGEST) for _ in range(difficulty + 1)]
        solution, target = _combined(dice, numbers)
        if target in numbers or not 0 < target < 1000:
            return None
        shown = f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
        return Problem(
            id=f"countdown/{'-'.join(map(str, numbers))}={target}",
            prompt=(
                f"Use the numbers {shown}, each exactly once, with +, -, *, / and parentheses, to "
                f"make {target}. Answer with just the expression."
            ),
            reference={"numbers": numbers, "target": int(target)},
            content=f"countdown/{sorted(numbers)}={target}",
            metadata={"answer": solution},
        )

    return function_task("countdown", difficulty, make, check_countdown)


def _combined(dice: Dice, numbers: list[int]) -> tuple[str, Fraction]:
    """Join two parts after another, until one expression is left; divisions are exact."""
    parts = [(str(number), Fraction(number)) for number in numbers]
    while len(parts) > 1:
        (left, a), (right, b), *parts = dice.sample(parts, len(parts))
        sign = dice.choice("+-*/" if b and (a / b).denominator == 1 else "+-*")
        value = {"+": a + b, "-": a - b, "*": a * b}.get(sign)
        parts.append((f"({left} {sign} {right})", a / b if value is None else value))
    text, value = parts[0]
    return text.removeprefix("(").removesuffix(")"), value


def check_countdown(completion: str, reference: Mapping[str, Any]) -> Verdict:
    """Reward 1 when the last expression uses each number once and makes the target.

    What stands behind an equals sign is no expression. Without an expression that can be read the
    verdict is unparsable.

    Example:
        check_countdown("3 * 8 = 24", {"numbers": [8, 3], "target": 24})   -> reward 1

    Args:
        completion: the text.
        reference: ``numbers``, whole and positive, and ``target``.
    """
    try:
        text = final_text(completion).translate(_LOOKS)
    except NoAnswer as reason:
        return Verdict.unparsable(str(reason))
    found = [each for each in _EXPRESSION.findall(text) if re.search(r"[0-9)] *[+*/-]", each)]
    if not found:
        return Verdict.unparsable("there is no expression in the completion")
    try:
        value, numbers = _read(found[-1])
    except ValueError as reason:
        return Verdict.unparsable(f"{found[-1]!r:.80} is no expression: {reason}")
    if sorted(numbers) != sorted(reference["numbers"]):
        return Verdict.scored(0.0, f"it uses {numbers}; expected {reference['numbers']}")
    detail = f"{found[-1]:.80} is {value}; expected {reference['target']}"
    return Verdict.scored(float(value == reference["target"]), detail)


def _read(text: str) -> tuple[Fraction, list[int]]:
    """The value of an expression, exactly, and its numbers.

    Raises:
        ValueError: it is too long, no expression of the four operations, or divides by 0.
    """
    if len(text) > LONGEST:
        raise ValueError(f"longer than {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, MemoryError, RecursionError):
        raise ValueError("its signs and parentheses do not fit") from None
    numbers: list[int] = []
    try:
        return _value(tree.body, numbers), numbers
    except ZeroDivisionError:
        raise ValueError("it divides by 0") from None


def _value(node: ast.expr, numbers: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        numbers.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        left, right = _value(node.left, numbers), _value(node.right, numbers)
        return _SIGNS[type(node.op)](left, right)
    raise ValueError("expected whole numbers, +, -, * and /")
