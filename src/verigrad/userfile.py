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


def describe_failure(failure: BaseException, file: Path, what: str) -> str:
    """One line: the file, the row in it, and the error."""
    if isinstance(failure, SyntaxError):
        return f"{file} {what}: line {failure.lineno}: {failure.msg}"
    last = traceback.extract_tb(failure.__traceback__)[-1]
    return f"{file} {what}: {type(failure).__name__}: {failure} ({last.filename}:{last.lineno})"


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
        raise error(describe_failure(failure, file, "fails to run")) from failure
    return module
