"""The built-in tasks: what each is, and how hard it can be."""

from collections.abc import Callable
from dataclasses import dataclass

from verigrad.errors import TaskError
from verigrad.tasks.addition import addition, toy
from verigrad.tasks.arithmetic import arithmetic
from verigrad.tasks.base import Task
from verigrad.tasks.countdown import countdown
from verigrad.tasks.extraction import extraction
from verigrad.tasks.functions import functions
from verigrad.tasks.sorting import sorting
from verigrad.tasks.strings import strings


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltIn:
    """A built-in task, before it is known how hard it is to be.

    Calling it makes the task, at the usual difficulty where none is given.
    """

    name: str
    """What a configuration calls it."""

    summary: str
    """What its problems are, in a few words."""

    make: Callable[[int], Task]
    """The task of a difficulty."""

    hardest: int
    """Difficulties go from 1 to this."""

    usual: int = 1
    """The difficulty where none is given."""

    def __call__(self, difficulty: int | None = None) -> Task:
        """Make the task.

        Raises:
            TaskError: it has no such difficulty.
        """
        chosen = self.usual if difficulty is None else difficulty
        if not 1 <= chosen <= self.hardest:
            raise TaskError(
                f"task.difficulty is {chosen}, but that of {self.name} goes from 1 to "
                f"{self.hardest}"
            )
        return self.make(chosen)


_ALL = (
    BuiltIn(
        name="addition",
        summary="sums of two numbers from 1 to 10 times the difficulty; finite",
        make=addition,
        hardest=20,
        usual=2,
    ),
    BuiltIn(
        name="arithmetic",
        summary="expressions of as many +, - and * as the difficulty",
        make=arithmetic,
        hardest=5,
    ),
    BuiltIn(
        name="countdown",
        summary="make a target from one number more than the difficulty",
        make=countdown,
        hardest=5,
    ),
    BuiltIn(
        name="sorting",
        summary="put 3, 5, 7, ... numbers in order, up or down",
        make=sorting,
        hardest=10,
    ),
    BuiltIn(
        name="strings",
        summary="change a made-up word, in up to 3 steps",
        make=strings,
        hardest=6,
    ),
    BuiltIn(
        name="json",
        summary="give as many facts of a sentence as JSON as the difficulty",
        make=extraction,
        hardest=5,
    ),
    BuiltIn(
        name="functions",
        summary="write a Python function of as many steps, which tests check in the sandbox",
        make=functions,
        hardest=4,
    ),
    BuiltIn(
        name="toy",
        summary="nine sums, for a table of logits; finite",
        make=lambda _: toy(),
        hardest=1,
    ),
)

TASKS: dict[str, BuiltIn] = {each.name: each for each in _ALL}
"""The built-in tasks by name."""
