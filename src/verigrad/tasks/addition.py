"""Adding two numbers: nine problems for a table, four hundred for a language model."""

from verigrad.tasks.base import ProblemTask
from verigrad.types import Problem
from verigrad.verifiers import last_number


def toy() -> ProblemTask:
    """``a + b`` for a and b from 1 to 3: nine problems whose answers are 2 to 6."""
    problems = [_sum(a, b, task="toy", prompt=f"{a} + {b} =") for a, b in _pairs(3)]
    return ProblemTask("toy", problems, last_number)


def addition(difficulty: int) -> ProblemTask:
    """Sums of two numbers from 1 to 10 times the difficulty, asked in words: 400 at 2.

    A pair and its mirror image are the same content, so both are on the same side of the split.
    """
    problems = [
        _sum(a, b, task="addition", prompt=f"What is {a} + {b}? Answer with just the number.")
        for a, b in _pairs(10 * difficulty)
    ]
    return ProblemTask("addition", problems, last_number)


def _pairs(largest: int) -> list[tuple[int, int]]:
    return [(a, b) for a in range(1, largest + 1) for b in range(1, largest + 1)]


def _sum(a: int, b: int, *, task: str, prompt: str) -> Problem:
    return Problem(
        id=f"{task}/{a}+{b}",
        prompt=prompt,
        reference=a + b,
        content=f"{task}/{min(a, b)}+{max(a, b)}",
    )
