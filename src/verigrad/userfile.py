"""Running a file of the user's, which a configuration names as ``file.py:name``."""

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from verigrad.errors import UserError
from verigrad.hashing import stable_hash

MODULE_PREFIX = "verigrad_file_"
"""Begins the name of the module that such a file becomes; no other process can import it."""


def load_from_file(name: str, *, kind: str, error: type[UserError]) -> Any:
    """Get what ``file.py:name`` names, by running the file.

    Args:
        name: the file, absolute or relative to the working directory, and a name defined in it.
        kind: what it is to be, for the messages: "task", "algorithm".
        error: what to raise.

    Raises:
        UserError: of the given class; the file fails to run, or defines no such name.
    """
    file, _, attribute = name.rpartition(":")
    module = _run(Path(file), kind, error)
    if not hasattr(module, attribute):
        names = ", ".join(key for key in vars(module) if not key.startswith("_"))
        raise error(f"{file} has no {attribute!r}; it defines: {names}")
    return getattr(module, attribute)


def describe_failure(failure: BaseException, what: str, file: Path) -> str:
    """One line: what fails, the error, and the row of the user's file that led to it."""
    if isinstance(failure, SyntaxError) and _is_same(failure.filename, file):
        return f"{what}: line {failure.lineno}: {failure.msg}"
    frames = traceback.extract_tb(failure.__traceback__)
    own = [frame for frame in frames if _is_same(frame.filename, file)]
    place = (own or frames)[-1]
    return f"{what}: {type(failure).__name__}: {failure} ({place.filename}:{place.lineno})"


def _is_same(name: str | None, file: Path) -> bool:
    return name is not None and Path(name).resolve() == file.resolve()


def _run(file: Path, kind: str, error: type[UserError]) -> object:
    """Import a file under a name of its own, so that it shadows nothing."""
    module_name = f"{MODULE_PREFIX}{stable_hash(file.resolve()):016x}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise error(f"{file} is not a Python file; {kind} of your own is named file.py:name")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as failure:
        raise error(describe_failure(failure, f"{file} fails to run", file)) from failure
    return module
