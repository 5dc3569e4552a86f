"""The application itself: arguments in, an exit code out, every error one line on stderr.

cyclopts splits the arguments and writes the help; the configuration loader reads and checks the
values. An error that nobody foresaw keeps its traceback, and Python's exit code 1.
"""

import io
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import NoReturn

from cyclopts import App, CycloptsError, UnknownOptionError, UnusedCliTokensError

from verigrad.cli.options import option_of, path_of
from verigrad.config.checks import shown
from verigrad.config.keys import KEYS, SECTIONS, nearest_key
from verigrad.errors import StorageError, UserError, VerigradError
from verigrad.escaping import give_up, one_line, printable

EXIT_CODES = """Exit codes:
  0    fine
  1    a check found something
  2    the user's mistake: a file, a key, a value, a model
  3    more verdicts of one step failed than the configuration allows
  4    a loss, gradient or reward is not a finite number
  5    a file of the run cannot be written: the disk is full, read-only or gone
  130  interrupted with Ctrl-C
  141  the reader of the output of plan or eval went away
  143  ended by SIGTERM"""

INTERRUPTED = 130
READER_GONE = 141
TERMINATED = 143

app = App(
    name="verigrad",
    help="Train language models with policy gradients from rewards that a program can verify.",
    help_epilogue=EXIT_CODES,
    help_format="plaintext",
    version=lambda: _version(),
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: What follows ``verigrad``; by default the arguments of the process.
    """
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    _accept_every_character()
    try:
        with _told_of_sigterm():
            return int(app(tokens) or 0)
    except CycloptsError as error:
        return _fail(_explain(error), UserError.exit_code)
    except VerigradError as error:
        return _fail(str(error), error.exit_code)
    except _Terminated:
        return _fail("ended by SIGTERM", TERMINATED)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)


class _Terminated(KeyboardInterrupt):
    """SIGTERM came, and what is going on ends as by Ctrl-C: nothing it started is left."""


@contextmanager
def _told_of_sigterm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        # Signals are those of the program that called.
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _accept_every_character() -> None:
    """Let what a terminal cannot show come out as an escape: a model may write any character."""
    for stream in (sys.stdout, sys.stderr):
        # What stands behind a stream may have been replaced by a pipe, which cannot be asked.
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):
                stream.reconfigure(errors="backslashreplace")


def _version() -> str:
    try:
        return version("verigrad")
    except PackageNotFoundError:
        return "not installed, running from its source"


def _fail(message: str, code: int) -> int:
    line = one_line(" ".join(part.strip() for part in message.splitlines()))
    # A program that was started without a standard error has none; and it may be on a full disk.
    if sys.stderr is not None:
        try:
            sys.stderr.write(f"verigrad: error: {line}\n")
        except OSError:
            give_up(sys.stderr)
    return code


def write(text: str) -> int:
    """Write a result to stdout, where ``| head`` may have stopped reading, or a disk be full."""
    if sys.stdout is None:
        return READER_GONE
    try:
        sys.stdout.write(f"{printable(text)}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        give_up(sys.stdout)
        return READER_GONE
    except OSError as error:
        give_up(sys.stdout)
        return _fail(f"the result cannot be written: {error.strerror}", StorageError.exit_code)
    return 0


def _explain(error: CycloptsError) -> str:
    """Say in one line what is wrong with the arguments."""
    help_command = " ".join(("verigrad", *(error.command_chain or ()), "--help"))
    if isinstance(error, UnknownOptionError):
        options = [name for argument in error.argument_collection for name in argument.names]
        found, _, _ = (error.token.keyword or error.token.value).partition("=")
        return f"{_unknown_option(found, options)} (all of them: {help_command})"
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(error.unused_tokens or ())
        return f"{shown(extra)} is one argument too many; see {help_command}"
    text = str(error)
    return text[:1].lower() + text[1:]


def _unknown_option(found: str, options: Sequence[str]) -> str:
    name = path_of(found)
    if name in SECTIONS:
        keys = ", ".join(option_of(path) for path in KEYS if path.startswith(f"{name}."))
        return f"{found} is a section; name one of its keys: {keys}"
    nearest = nearest_key(name, [path_of(option) for option in options])
    hint = f"; did you mean {option_of(nearest)}?" if nearest else ""
    return f"{found} is not an option{hint}"
