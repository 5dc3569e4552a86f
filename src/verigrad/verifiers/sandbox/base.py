"""What a sandbox is: the seam between the code verifier and what keeps a program in."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from verigrad.errors import UserError, VerigradError


class Strength(StrEnum):
    """How much a sandbox can be trusted with."""

    ISOLATED = "isolated"
    """Made for hostile programs: no network, no file of the machine, nothing left behind."""

    ACCIDENTS = "accidents"
    """Limits only. Stops a program that is wrong, not one that is meant to do harm."""


class SandboxUnavailableError(UserError):
    """A sandbox that was asked for cannot be made on this machine."""


class SandboxError(VerigradError):
    """A sandbox did not do its work; nothing is known about the program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxLimits:
    """What one program may use, with all the processes that it starts."""

    seconds: float = 5.0
    """Of processor time; and as long again of anything else but waiting for a free processor."""

    wall_seconds: float = 15.0
    """From beginning to end, however busy the machine is."""

    memory_bytes: int = 512 * 2**20
    """Address space of one process, and resident memory of all together."""

    processes: int = 32
    """Processes and threads at a time."""

    file_bytes: int = 16 * 2**20
    """Of one file, and of all together where files are kept in a file system of their own."""

    output_bytes: int = 2**20
    """Of standard output, and of the values that are reported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    r"""What to run.

    Example:
        Program(sources=("def square(n):\n    return n * n\n",), calls=("square(3)",))
        Program(sources=("print(int(input()) ** 2)\n",), stdin=b"3\n")
    """

    sources: tuple[str, ...]
    """Candidates for its text; the first that compiles is run."""

    calls: tuple[str, ...] | None = None
    """Expressions to evaluate in its namespace, in order; None for a script."""

    stdin: bytes = b""
    """What it reads."""


class Ending(StrEnum):
    """How a program ended."""

    EXITED = "exited"
    """By itself, or by a signal of its own making."""

    TIME = "time"
    """It took too long."""

    MEMORY = "memory"
    """All its processes together held too much."""

    PROCESSES = "processes"
    """There were too many of them."""

    OUTPUT = "output"
    """It wrote too much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    r"""What a program did. Everything in it may be of the program's own making.

    Example:
        Outcome(ending=Ending.EXITED, exit_code=0, stdout=b"9\n", ...)
    """

    ending: Ending
    """How it ended."""

    exit_code: int
    """Of its first process; minus the number of the signal that killed it."""

    stdout: bytes
    """What it wrote, up to the limit; empty unless it is a script."""

    values: tuple[Any, ...]
    """What its calls came to, in order, as far as it got; plain data, or an Opaque."""

    completed: bool
    """Every call has a value, or the script was compiled and began."""

    detail: str
    """Why it did not complete, in words; empty if it did."""

    error: str
    """The name of the error that ended its calls; empty if none did."""

    seconds: float
    """From handing it over to the end of its last process."""


class Sandbox(Protocol):
    """Runs programs one at a time, and leaves nothing of them behind."""

    @property
    def name(self) -> str:
        """As in SANDBOXES."""
        ...

    @property
    def strength(self) -> Strength:
        """How much it can be trusted with."""
        ...

    def run(self, program: Program, limits: SandboxLimits) -> Outcome:
        """Run a program to its end.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        ...

    def close(self) -> None:
        """End what stands ready for the next program."""
        ...
