"""Numbers to be put in order."""

import re
from collections.abc import Sequence

from verigrad.tasks.base import FunctionTask
from verigrad.tasks.dice import Dice
from verigrad.tasks.making import function_task
from verigrad.types import Problem, Verdict
from verigrad.verifiers.answer import NoAnswer, final_text

LARGEST = 99


def sorting(difficulty: int) -> FunctionTask:
    """Twice as many numbers as the difficulty says, and one more, all different, from 1 to 99.

    The same numbers in the same direction are the same content, however they are shuffled. They are
    never in order already.
    """

    def make(dice: Dice) -> Problem | None:
        numbers = dice.sample(range(1, LARGEST + 1), 2 * difficulty + 1)
        rising = dice.choice((True, False))
        answer = sorted(numbers, reverse=not rising)
        if answer == numbers:
            return None
        shown = ", ".join(map(str, numbers))
        way = "smallest to largest" if rising else "largest to smallest"
        return Problem(
            id=f"sorting/{'up' if rising else 'down'}/{'-'.join(map(str, numbers))}",
            prompt=(
                f"Sort these numbers from {way}: {shown}. Answer with just the numbers, separated "
                "by commas."
            ),
            reference=answer,
            content=f"sorting/{answer}",
            metadata={"answer": ", ".join(map(str, answer))},
        )

    return function_task("sorting", difficulty, make, check_order)


def check_order(completion: str, reference: Sequence[int]) -> Verdict:
    """Reward 1 when the numbers of the last line that has any are the reference, in its order.

    Example:
        check_order("Sorted: 1, 5, 9", [1, 5, 9])   -> reward 1
    """
    try:
        lines = [re.findall(r"[0-9]+", line) for line in final_text(completion).splitlines()]
    except NoAnswer as reason:
        return Verdict.unparsable(str(reason))
    found = [numbers for numbers in lines if numbers]
    if not found:
        return Verdict.unparsable("there is no number in the completion")
    wanted = [str(number) for number in reference]
    detail = f"the numbers are {', '.join(found[-1]):.80}; expected {', '.join(wanted)}"
    return Verdict.scored(float(found[-1] == wanted), detail)
