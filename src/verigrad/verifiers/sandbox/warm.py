"""Sandboxes whose next program is a fork away: a process of ours makes them, and stays ready."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from verigrad.verifiers.sandbox.base import (
    Outcome,
    Program,
    SandboxError,
    SandboxLimits,
    SandboxUnavailableError,
    Strength,
)
from verigrad.verifiers.sandbox.exchange import exchange

FOLDER = str(Path(__file__).parent)
"""Holds the package ``inside``, which an interpreter that has nothing installed can load."""

ENVIRONMENT = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0"}
"""All of a program's environment, but for the folders it may write to. Hashes of text are always
the same, so that a program does the same thing twice."""

START_SECONDS = 30.0
"""How long a sandbox may take to be ready."""


class DamagedError(SandboxUnavailableError):
    """A file that was made for a sandbox and kept cannot be used; a new one may do."""


def interpreter() -> str:
    """The interpreter that the programs run in: this one, without its virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def inside_command(folder: str, statement: str) -> list[str]:
    """A command that runs a statement with a folder that holds ``inside`` at hand.

    The interpreter has its standard library and nothing else: what is installed beside it is not
    the programs' to use, and may run code of its own at every start.
    """
    script = (
        f"import sys; sys.path.insert(0, {folder!r}); "
        f"import site; site.setquit(); site.setcopyright(); site.sethelper(); {statement}"
    )
    return [interpreter(), "-s", "-P", "-S", "-B", "-c", script]


def with_packages(statement: str) -> str:
    """A statement that finds what is installed beside this library.

    For processes of ours only, which hold a sandbox that a package makes.
    """
    return f"sys.path += {[path for path in sys.path if path]!r}; {statement}"


class Warm:
    """Starts the process that stands ready, when it is needed or has gone."""

    name: str
    strength: Strength

    def __init__(self) -> None:
        """Start.

        Raises:
            SandboxUnavailableError: it cannot be made on this machine.
        """
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._errors: IO[bytes] | None = None
        self._connected()

    def run(self, program: Program, limits: SandboxLimits) -> Outcome:
        """Run a program to its end, when those before it have ended.

        Raises:
            SandboxError: the sandbox itself failed; the next program gets a new one.
        """
        with self._lock:
            control = self._connected()
            try:
                outcome = exchange(control, program, limits)
                if "gone" not in json.loads(control.recv(4096) or b"{}"):
                    raise SandboxError(f"the sandbox {self.name} ended")
            except BaseException:
                self.close()
                raise
        return outcome

    def close(self) -> None:
        """End the process and all that it has started."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _connected(self) -> socket.socket:
        if self._control is not None and self._process is not None:
            if self._process.poll() is None:
                return self._control
            self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed by close
        with theirs:
            self._process = subprocess.Popen(
                inside_command(FOLDER, self._statement(theirs.fileno())),
                env=ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._control = ours
        self._await_ready(ours)
        return ours

    def _statement(self, descriptor: int) -> str:
        """What the process runs, given its socket."""
        isolated = self.strength is Strength.ISOLATED
        return (
            "from inside.serve import serve; del sys.path[0]; "
            f"serve({descriptor}, {isolated}, {sys.base_prefix!r})"
        )

    def _await_ready(self, control: socket.socket) -> None:
        control.settimeout(START_SECONDS)
        try:
            said = json.loads(control.recv(4096) or b"{}")
        except TimeoutError:
            said = {}
        control.settimeout(None)
        if "ready" not in said:
            reason = said.get("unavailable") or self._last_words()
            self.close()
            raise DamagedError(reason) if "damaged" in said else SandboxUnavailableError(reason)

    def _last_words(self) -> str:
        """The last line that our own process wrote before it ended."""
        words: list[str] = []
        if self._errors is not None:
            self._errors.seek(0)
            words = self._errors.read().decode("utf-8", "replace").strip().split("\n")
        return f"it ended before it was ready: {words[-1] if words else ''}"


class Namespaces(Warm):
    """Linux namespaces of its own, a root with nothing in it, a filter of system calls, and limits.

    Works as root, where another user runs the programs, and as a user that may make namespaces.
    """

    name = "namespaces"
    strength = Strength.ISOLATED


class Subprocess(Warm):
    """A process with limits. It stops accidents only: files and the network are open to it."""

    name = "subprocess"
    strength = Strength.ACCIDENTS
