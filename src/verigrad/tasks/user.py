"""A task from the user's own Python file, named ``file.py:name``."""

from pathlib import Path

from verigrad.errors import TaskError
from verigrad.tasks.base import Task
from verigrad.userfile import describe_failure, load_from_file


def load_user_task(name: str) -> Task:
    """Load what ``file.py:name`` names: a task, or a function without arguments that makes it.

    Raises:
        TaskError: the file fails to run, has no such name, or the name is not a task.
    """
    found = load_from_file(name, kind="a task", error=TaskError)
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


def _call(function: object, name: str) -> object:
    try:
        return function()  # type: ignore[operator]
    except TaskError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(describe_failure(error, Path(name), "fails to make its task")) from error
