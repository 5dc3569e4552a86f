"""A process that is ready: for every job it has the package sandlock start a sandbox anew.

The attendant watches over the sandbox from outside, as over any other program: sandlock bounds
neither processor time nor what is resident in memory.
"""

import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import warnings

import sandlock

from . import linux
from .attend import Attendant, Family, receive_job
from .confine import Limits
from .harness import Job
from .root import DEVICES, readable
from .serve import answer_jobs
from .take import JOB
from .usage import Usage, descendants, waited_in_turn

THREADS, MEMORY = 16, 64 * 2**20
"""Threads, and bytes, that sandlock takes for itself at most."""

_NOBODY = 0x50000000
"""A user of this number, of whom the machine knows nothing, stands in for root."""


def serve(descriptor: int, command: list[str], folder: str, environment: dict[str, str]) -> None:
    """Answer jobs until the other end of the socket is closed.

    Args:
        descriptor: of the socket.
        command: starts an interpreter inside, which takes the job.
        folder: what that interpreter needs beside its library.
        environment: what it finds in its own.
    """
    control = socket.socket(fileno=descriptor)
    linux.die_with_parent()
    linux.lift(resource.RLIMIT_AS)
    os.chdir("/")
    found, needed = sandlock.landlock_abi_version(), sandlock.min_landlock_abi()
    if found < needed:
        reason = f"it needs Landlock of version {needed}, and this kernel has {max(found, 0)}"
        control.send(json.dumps({"unavailable": reason}).encode())
        return
    # It warns of what it does not do with a group.
    warnings.simplefilter("ignore")
    readers = [*readable(sys.base_prefix), folder, *(f"/dev/{device}" for device in DEVICES)]

    def attend(control: socket.socket) -> None:
        message, descriptors = receive_job(control)
        limits: Limits = json.loads(message)
        program = _Program(limits, command, readers, environment)
        room = {"processes": limits["processes"] + THREADS,
                "memory_bytes": limits["memory_bytes"] + MEMORY}  # fmt: skip
        attendant = Attendant(control, _Supervised(), lambda _: None, program.perform)
        attendant.attend(json.dumps({**limits, **room}).encode(), descriptors)
        program.clear()

    answer_jobs(control, attend)


class _Supervised(Family):
    """The program's processes and sandlock's supervisor, which wait for each other."""

    def usage(self) -> Usage:
        """What they use; all of them together have waited as long as each after the other."""
        waited = waited_in_turn(self._proc, descendants(self._proc, os.getpid()))
        return super().usage()._replace(waited_seconds=waited)


class _Program:
    """One program, in a folder made for it."""

    def __init__(
        self, limits: Limits, command: list[str], readers: list[str], environment: dict[str, str]
    ) -> None:
        self._attendant = os.getpid()
        self._limits, self._command, self._readers = limits, command, readers
        self._folder = tempfile.mkdtemp(prefix="verigrad-", dir="/tmp")
        self._work, self._changes = f"{self._folder}/work", f"{self._folder}/changes"
        self._environment = {**environment, "HOME": self._work, "TMPDIR": self._work}
        for part in (self._work, self._changes):
            os.mkdir(part, 0o700)

    def perform(self, job: Job, report: int) -> int:
        """Have the job run in a new sandbox; this process ends as the program does."""
        with open(f"{self._work}/{JOB}", "w", encoding="utf-8") as file:
            json.dump({"job": job, "limits": self._limits}, file)
        os.dup2(report, 2)
        try:
            ended = self._sandbox().popen(self._command).wait()
        except RuntimeError:
            self._break_down()
            raise
        if ended.error is not None:
            self._break_down()
        if ended.exit_code < 0:
            os.kill(os.getpid(), ended.signal if ended.signal > 0 else signal.SIGKILL)
        os._exit(ended.exit_code)

    def _sandbox(self) -> sandlock.Sandbox:
        users = {"uid": _NOBODY, "gid": _NOBODY} if os.geteuid() == 0 else {}
        return sandlock.Sandbox(
            fs_readable=self._readers,
            fs_writable=[self._work, os.devnull],
            cwd=self._work,
            clean_env=True,
            env=self._environment,
            max_processes=self._limits["processes"],
            # What is written goes to a folder of sandlock's, which bounds it, and is dropped.
            workdir=self._work,
            fs_storage=self._changes,
            max_disk=self._limits["file_bytes"],
            on_exit=sandlock.BranchAction.ABORT,
            on_error=sandlock.BranchAction.ABORT,
            **users,
        )

    def _break_down(self) -> None:
        """End without an answer: that there is no sandbox is not the program's fault."""
        self.clear()
        os.kill(self._attendant, signal.SIGKILL)

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
