"""Tasks: named collections of problems, each with the verifier that scores them."""

from collections.abc import Callable

from verigrad.config import TaskConfig
from verigrad.config.names import GIVEN_IN_PYTHON
from verigrad.errors import TaskError
from verigrad.tasks.addition import addition, toy
from verigrad.tasks.base import (
    ProblemTask,
    Split,
    Task,
    problem_at,
    solution_of_problem,
    split,
)
from verigrad.tasks.user import load_user_task
from verigrad.tasks.verified import with_verifier

__all__ = [
    "TASKS",
    "ProblemTask",
    "Split",
    "Task",
    "load_task",
    "problem_at",
    "solution_of_problem",
    "split",
    "with_verifier",
]

TASKS: dict[str, Callable[[], Task]] = {"addition": addition, "toy": toy}
"""The built-in tasks by name."""


def load_task(config: TaskConfig) -> Task:
    """Make the task that a configuration names.

    Raises:
        TaskError: a task file cannot be loaded, or does not hold a usable task.
    """
    if config.name.startswith(GIVEN_IN_PYTHON):
        raise TaskError(
            f"the task {config.name.removeprefix(GIVEN_IN_PYTHON)!r} was given from Python, which "
            "no file names; pass it again: verigrad.resume(folder, task=...)"
        )
    if config.name in TASKS:
        return TASKS[config.name]()
    return load_user_task(config.name)
