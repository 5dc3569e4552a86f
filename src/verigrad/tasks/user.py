"""A task from the user's own Python file, named ``file.py:name``."""

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from verigrad.errors import TaskError
from verigrad.hashing import stable_hash
from verigrad.tasks.base import Task


def load_user_task(name: str) -> Task:
    """Load what ``file.py:name`` names: a task, or a function without arguments that makes it.

    Raises:
        TaskError: the file fails to run, has no such name, or the name is not a task.
    """
    file, _, attribute = name.rpartition(":")
    module = _run_file(Path(file))
    if not hasattr(module, attribute):
        names = ", ".join(key for key in vars(module) if not key.startswith("_"))
        raise TaskError(f"{file} has no {attribute!r}; it defines: {names}")
    found = getattr(module, attribute)
    if callable(found) and not hasattr(found, "verifier"):
        found = _call(found, name)
    missing = [
        need for need in ("name", "verifier", "__len__", "__getitem__") if not hasattr(found, need)
    ]
    if missing:
        raise TaskError(
            f"{name} is a {type(found).__name__} without {', '.join(missing)}; expected a task "
            "(verigrad.ProblemTask, for one) or a function without arguments that returns one"
        )
    task: Task = found
    return task


def _run_file(file: Path) -> ModuleType:
    """Import a file under a name of its own, so that it shadows nothing."""
    module_name = f"verigrad_task_{stable_hash(file.resolve()):016x}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise TaskError(f"{file} is not a Python file; a task is named file.py:name")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise TaskError(_failure(error, file, "fails to run")) from error
    return module


def _call(function: object, name: str) -> object:
    try:
        return function()  # type: ignore[operator]
    except TaskError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(_failure(error, Path(name), "fails to make its task")) from error


def _failure(error: BaseException, file: Path, what: str) -> str:
    """One line: the file, the row in it, and the error."""
    if isinstance(error, SyntaxError):
        return f"{file} {what}: line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    return f"{file} {what}: {type(error).__name__}: {error} ({last.filename}:{last.lineno})"
