"""A task from the user's own Python file, named ``file.py:name``."""

import inspect
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from verigrad.errors import TaskError
from verigrad.tasks.base import ProblemTask, Task
from verigrad.types import Problem
from verigrad.userfile import describe_failure, load_from_file

MOST_YIELDED = 100_000
"""Most problems that a generator may yield; all of them are kept."""


def load_user_task(name: str) -> Task:
    """Load what ``file.py:name`` names.

    It is a task, a function without arguments that makes one, or a generator function of problems
    or of pairs of a prompt and a reference, whose completions ``verifier.name`` says how to check.

    Raises:
        TaskError: the file fails to run, has no such name, or the name is not a task.
    """
    found = load_from_file(name, kind="a task", error=TaskError)
    if inspect.isgeneratorfunction(found):
        return _from_generator(found, name)
    if callable(found) and not hasattr(found, "verifier"):
        found = _call(found, name)
    needs = ["name", "verifier"]
    if not hasattr(found, "problem"):
        needs += ["__len__", "__getitem__"]
    missing = [need for need in needs if not hasattr(found, need)]
    if missing:
        raise TaskError(
            f"{name} is a {type(found).__name__} without {', '.join(missing)}; expected a task "
            "(verigrad.ProblemTask, for one) or a function without arguments that returns one"
        )
    task: Task = found
    return task


class NoVerifier:
    """Stands where a generator's task has no verifier; ``verifier.name`` takes its place."""

    def __call__(self, completion: str, reference: Any) -> bool:
        """Never called in a run, which is refused."""
        raise TypeError("a generator of problems says nothing of how completions are checked")


def _from_generator(function: Callable[[], Iterator[Any]], name: str) -> ProblemTask:
    problems = []
    try:
        for index, item in enumerate(islice(function(), MOST_YIELDED + 1)):
            pair = isinstance(item, tuple) and len(item) == 2
            problems.append(
                Problem(id=str(index), prompt=item[0], reference=item[1]) if pair else item
            )
    except (Exception, SystemExit) as error:
        file = Path(name.rpartition(":")[0])
        raise TaskError(
            describe_failure(error, f"{name} fails to yield its problems", file)
        ) from error
    if len(problems) > MOST_YIELDED:
        raise TaskError(
            f"{name} yields more than {MOST_YIELDED:,} problems; for problems without end make a "
            "verigrad.FunctionTask of a function of a seed and an index"
        )
    return ProblemTask(name.rpartition(":")[2], problems, NoVerifier())


def _call(function: object, name: str) -> object:
    try:
        return function()  # type: ignore[operator]
    except (Exception, SystemExit) as error:
        file = Path(name.rpartition(":")[0])
        raise TaskError(describe_failure(error, f"{name} fails to make its task", file)) from error
