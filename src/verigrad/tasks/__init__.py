"""Tasks: named collections of problems, each with the verifier that scores them."""

from collections.abc import Callable

from verigrad.config import DataConfig, TaskConfig
from verigrad.config.names import GIVEN_IN_PYTHON, is_data
from verigrad.errors import TaskError
from verigrad.tasks.addition import addition, toy
from verigrad.tasks.base import Prepared, ProblemTask, Split, Task, normalised, problem_at, split
from verigrad.tasks.user import load_user_task

__all__ = [
    "TASKS",
    "Prepared",
    "ProblemTask",
    "Split",
    "Task",
    "load_task",
    "normalised",
    "problem_at",
    "split",
]

TASKS: dict[str, Callable[[], Task]] = {"addition": addition, "toy": toy}
"""The built-in tasks by name."""


def load_task(config: TaskConfig, data: DataConfig | None = None) -> Task:
    """Make the task that a configuration names.

    Args:
        config: the name.
        data: how rows become problems, where the name is that of data.

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
    if not is_data(config.name):
        return load_user_task(config.name)
    from verigrad.tasks.data import data_task

    return data_task(config.name, data or DataConfig())
