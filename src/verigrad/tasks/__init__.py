"""Tasks: named collections of problems, each with the verifier that scores them."""

from dataclasses import fields

from verigrad.config import Config, DataConfig, TaskConfig
from verigrad.config.names import GIVEN_IN_PYTHON, is_data, parts_of
from verigrad.config.schema import MIXTURE, REASONING_GYM
from verigrad.errors import ConfigError, TaskError
from verigrad.tasks.base import (
    Drawn,
    EndlessTask,
    FiniteTask,
    FunctionTask,
    Prepared,
    ProblemTask,
    Split,
    Task,
    first_problems,
    solution_of_problem,
)
from verigrad.tasks.builtin import TASKS
from verigrad.tasks.mixture import Mixture, Part, by_part
from verigrad.tasks.reasoning import reasoning_gym_task
from verigrad.tasks.splitting import normalised, problem_at, split
from verigrad.tasks.user import load_user_task
from verigrad.tasks.verified import with_verifier

__all__ = [
    "TASKS",
    "Drawn",
    "EndlessTask",
    "FiniteTask",
    "FunctionTask",
    "Mixture",
    "Part",
    "Prepared",
    "ProblemTask",
    "Split",
    "Task",
    "by_part",
    "first_problems",
    "load_task",
    "normalised",
    "problem_at",
    "solution_of_problem",
    "split",
    "task_of",
    "with_verifier",
]


def task_of(config: Config, given: Task | None = None) -> Task:
    """The task of a run, checked by the verifier that its configuration names, if it names one.

    Args:
        config: the run.
        given: a task of the caller's; None loads the one that the configuration names.

    Raises:
        UserError: the task or its data cannot be used, or there is no such verifier.
    """
    _refuse_idle(config)
    task = load_task(config.task, config.data) if given is None else given
    return with_verifier(task, config.verifier)


def _refuse_idle(config: Config) -> None:
    """Refuse keys of [data] where no task is data: who set one believes that it does something."""
    parts = [parts_of(part)[1] for part in config.task.mixture]
    keys = [key.name for key in fields(DataConfig) if getattr(config.data, key.name) != key.default]
    if keys and not any(map(is_data, (config.task.name, *parts))):
        raise ConfigError(
            f"data.{keys[0]} is set, but the task {config.task.name!r} is no data, so that nothing "
            "reads it; leave [data] out (verifier.name puts a verifier in the place of a task's)"
        )


def load_task(config: TaskConfig, data: DataConfig | None = None) -> Task:
    """Make the task that a configuration names.

    Args:
        config: the name.
        data: how rows become problems, where the name is that of data.

    Raises:
        TaskError: a task file cannot be loaded, or does not hold a usable task; a difficulty is
            none that the task has; a package is missing.
    """
    if config.name == MIXTURE:
        return Mixture(tuple(_part(text, data) for text in config.mixture))
    if config.name in TASKS:
        return TASKS[config.name](config.difficulty)
    if config.difficulty is not None:
        raise TaskError(
            f"task.difficulty is {config.difficulty}, but {config.name} has none; only built-in "
            "tasks have, which `verigrad tasks` lists"
        )
    if config.name.startswith(REASONING_GYM):
        return reasoning_gym_task(config.name.removeprefix(REASONING_GYM))
    if config.name.startswith(GIVEN_IN_PYTHON):
        raise TaskError(
            f"the task {config.name.removeprefix(GIVEN_IN_PYTHON)!r} was given from Python, which "
            "no file names; pass it again: verigrad.resume(folder, task=...)"
        )
    if not is_data(config.name):
        return load_user_task(config.name)
    from verigrad.tasks.data import data_task

    return data_task(config.name, data or DataConfig())


def _part(text: str, data: DataConfig | None) -> Part:
    weight, name, difficulty = parts_of(text)
    return Part(weight, load_task(TaskConfig(name=name, difficulty=difficulty), data))
