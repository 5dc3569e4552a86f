"""Runs one program, and reports what it came to. Nothing here knows what is expected of it.

The first source that compiles is the program. Either it is a script that talks through its standard
streams, or expressions are evaluated in its namespace, one after another. Reports go to a pipe, a
line each, and every line starts with the job's mark; a line without it was not written here.
"""

import builtins
import os
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import TextIO, TypedDict

from .values import TooBigError, Writer, name_of_type, quoted

globals()["__builtins__"] = dict(vars(builtins))  # Bound here, so that no program can change them.

SCRIPT, LIBRARY = "__main__", "solution"
"""Names of the program's module: code under a main guard runs in a script only."""


class Job(TypedDict):
    """What to run."""

    mark: str
    """What every line of the report starts with."""

    room: int
    """The most characters of a value."""

    sources: list[str]
    """Candidates for the program's text."""

    calls: list[str] | None
    """Expressions; None for a script."""


def perform(job: Job, report: int) -> int:
    """Run a job.

    Args:
        job: what to run.
        report: where to write what happens.

    Returns:
        The exit code of the process. A script goes on to an ordinary end of the interpreter, so
        that its exit handlers run and its output is flushed.
    """
    say = _reporter(report, job["mark"])
    code = _first_that_compiles(job["sources"], say)
    if code is None:
        return 1
    _fresh_streams()
    if job["calls"] is None:
        say('{"started":true}')
        os.close(report)
        exec(code, _namespace(SCRIPT))  # noqa: S102  running it is what this process is for
        return 0
    namespace = _namespace(LIBRARY)
    try:
        exec(code, namespace)  # noqa: S102
        for call in job["calls"]:
            value = eval(call, namespace)  # noqa: S307
            say('{"value":' + Writer(job["room"]).text(value) + "}")
        say('{"done":true}')
    except TooBigError:
        say('{"too_big":true}')
    except BaseException as error:  # noqa: BLE001  whatever it raises is its own affair
        say(_described(error))
    os._exit(0)


def _reporter(report: int, mark: str) -> Callable[[str], None]:
    write = os.write

    def say(line: str) -> None:
        left = memoryview(f"{mark} {line}\n".encode())
        while left:
            left = left[write(report, left) :]

    return say


def _first_that_compiles(sources: list[str], say: Callable[[str], None]) -> CodeType | None:
    said = "there is no program"
    for source in sources:
        try:
            return compile(source, "program", "exec", dont_inherit=True)
        except SyntaxError as error:
            said = f"{error.msg} (line {error.lineno})"
        except (ValueError, MemoryError, RecursionError) as error:
            said = name_of_type(error)
    say(f'{{"syntax":{quoted(said)}}}')
    return None


def _fresh_streams() -> None:
    """Standard streams over the descriptors as they are now."""
    sys.stdin = _stream(0, "r")
    sys.stdout = _stream(1, "w")
    sys.stderr = _stream(2, "w")


def _stream(descriptor: int, mode: str) -> TextIO:
    return open(  # type: ignore[return-value]
        descriptor, mode, encoding="utf-8", errors="surrogateescape", closefd=False
    )


def _namespace(name: str) -> dict[str, object]:
    """The names of a new module, which is known under its name as any other."""
    module = ModuleType(name)
    sys.modules[name] = module
    namespace = vars(module)
    namespace["__builtins__"] = builtins
    sys.argv = ["program"]
    return namespace


def _described(error: BaseException) -> str:
    """The kind of error and the innermost line of the program; its own words are not asked for."""
    line = 0
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "program":
            line = trace.tb_lineno
        trace = trace.tb_next
    return f'{{"raised":{quoted(name_of_type(error))},"line":{line}}}'
