"""A worker process, as the process that started it sees it."""

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from verigrad.errors import UserError, VerigradError
from verigrad.types import FailureKind, Status, Verdict
from verigrad.verifiers import frames
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.transport import Shipment

START_SECONDS = 300.0
"""How long loading a verifier may take."""

_ROOM = 2**16
"""Bytes that a message of a worker may have beside what its verdict may."""


class WorkerError(VerigradError):
    """A worker process cannot be started."""


class WorkerProcess:
    """One process, which makes one call at a time."""

    def __init__(self, shipment: Shipment, limits: Limits) -> None:
        """Start it, and wait until it has loaded the verifier.

        The process ends with the thread that starts it.

        Raises:
            UserError: the verifier cannot be loaded there.
            WorkerError: the process does not come up.
        """
        began = time.monotonic()
        self._limits = limits
        try:
            self._start(shipment)
        except OSError as error:
            # No file or process is left, or there is no folder for temporary files.
            raise WorkerError(f"a worker process cannot be started: {error}") from error
        self.start_seconds = time.monotonic() - began

    def _start(self, shipment: Shipment) -> None:
        with tempfile.TemporaryFile() as errors:
            self._connection, theirs = socket.socketpair()
            self._connection.setblocking(False)
            self._process = _start(theirs, errors)
            try:
                self._hand_over(shipment)
            except (frames.ClosedError, frames.LateError) as error:
                self.kill(patience=1.0)
                errors.seek(0)
                words = " ".join(errors.read().decode("utf-8", "replace").split())[-300:]
                raise WorkerError(
                    f"a worker process for the verifier does not start: {words or self._ending()}"
                ) from error

    def _hand_over(self, shipment: Shipment) -> None:
        deadline = time.monotonic() + START_SECONDS
        frames.send(self._connection, pickle.dumps((shipment, self._limits)), deadline)
        said = json.loads(frames.receive(self._connection, 2**20, deadline))
        if "error" in said:
            self.kill()
            raise UserError(f"the verifier cannot be loaded in a worker process: {said['error']}")

    @property
    def is_alive(self) -> bool:
        """Whether it can take a call."""
        return self._process.poll() is None

    def call(self, request: bytes) -> Verdict:
        """Make one call; however it goes, there is a verdict.

        After a failure that may have left something behind, the process is ended.
        """
        deadline = time.monotonic() + self._limits.wall_seconds
        try:
            frames.send(self._connection, request, deadline)
            longest = self._limits.output_bytes + _ROOM
            verdict = _read(frames.receive(self._connection, longest, deadline))
        except frames.LateError:
            self.kill()
            return Verdict.failed(
                f"timeout: no verdict within {self._limits.wall_seconds:g} s", FailureKind.TIMEOUT
            )
        except frames.ClosedError:
            self.kill(patience=1.0)
            return self._post_mortem()
        if verdict.kind is FailureKind.MEMORY:
            self.kill()
        return verdict

    def _post_mortem(self) -> Verdict:
        if self._process.returncode == -signal.SIGPROF:
            limit = self._limits.cpu_seconds
            return Verdict.failed(
                f"timeout: no verdict after {limit:g} s of processor time", FailureKind.TIMEOUT
            )
        return Verdict.failed(f"died: the worker process {self._ending()}", FailureKind.DIED)

    def _ending(self) -> str:
        code = self._process.returncode
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        # A real-time signal has a number only.
        names = {int(known): known.name for known in signal.Signals}
        return f"was ended by {names.get(-code, f'signal {-code}')}"

    def interrupt(self) -> None:
        """End it, from any thread; the thread that is waiting for it notices."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self, patience: float = 0.0) -> None:
        """End it, and what it has started in its process group, and let go of it.

        Args:
            patience: seconds that it has to end by itself, so that how it ends can be told.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=patience)
        self.interrupt()
        self._process.wait()
        self._connection.close()


def _start(theirs: socket.socket, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """The new process, which alone holds its end of the connection."""
    with theirs:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "verigrad.verifiers.worker", str(os.getpid())],
            env=_environment(),
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def _read(message: bytes) -> Verdict:
    """A verdict from what a worker wrote."""
    try:
        said: dict[str, Any] = json.loads(message)
        return Verdict(
            status=Status(said["status"]),
            reward=said["reward"],
            components=said["components"],
            weights=said["weights"],
            detail=said["detail"],
            kind=None if said["kind"] is None else FailureKind(said["kind"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise frames.ClosedError from error


def _environment() -> dict[str, str]:
    """That of this process, with this package within reach and one thread to each worker."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    root = str(Path(__file__).parents[2])
    if "site-packages" not in root and "dist-packages" not in root:
        paths = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), root]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return environment
