"""Starts one program, watches over all its processes, and leaves none behind.

Jobs come through a socket as one message: the limits as JSON, and four descriptors, of the job, of
standard input, of standard output, and of the pipe that the program reports to. The answer is one
message of JSON; it is sent when no process of the program is left.
"""

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Protocol

from . import linux, usage
from .confine import Limits, close_all_but
from .harness import Job, perform

TICK = 0.02
"""Seconds between two looks at what the program uses."""

MESSAGE = 4096
"""The most bytes of a message."""


class Crowd(Protocol):
    """Everything that runs on behalf of the program."""

    def usage(self) -> usage.Usage:
        """What it uses now."""
        ...

    def kill(self) -> None:
        """Kill it; what is started meanwhile may be missed."""
        ...


class Namespace:
    """All processes of the namespace that this process is the first of."""

    def __init__(self, proc: int) -> None:
        """Not yet anyone.

        Args:
            proc: a descriptor of the namespace's own /proc.
        """
        self._proc = proc

    def usage(self) -> usage.Usage:
        """What all but this process use."""
        others = [pid for pid in usage.everyone(self._proc) if pid != 1]
        return usage.measure(self._proc, others)

    def kill(self) -> None:
        """Kill all but this process, in one stroke."""
        _kill(-1)


class Family:
    """All descendants of this process, which adopts those whose parent has ended."""

    def __init__(self) -> None:
        linux.adopt_orphans()
        self._proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def usage(self) -> usage.Usage:
        """What the descendants use."""
        return usage.measure(self._proc, usage.descendants(self._proc, os.getpid()))

    def kill(self) -> None:
        """Kill the descendants one by one."""
        for pid in usage.descendants(self._proc, os.getpid()):
            _kill(pid)


class Attendant:
    """Watches one program."""

    def __init__(
        self,
        control: socket.socket,
        crowd: Crowd,
        confine: Callable[[Limits], None],
        perform: Callable[[Job, int], int] = perform,
    ) -> None:
        """Nothing happens yet.

        Args:
            control: where the job comes from and the answer goes to; when it ends, all ends.
            crowd: the processes to watch and to end.
            confine: called in the program's process before the program runs.
            perform: runs the job there, given where it reports to; returns the exit code.
        """
        self._control = control
        self._crowd = crowd
        self._confine = confine
        self._perform = perform
        self._parent = os.getppid()
        self._began = time.monotonic()

    def attend(self, message: bytes, descriptors: list[int]) -> None:
        """Run one job and answer it."""
        limits: Limits = json.loads(message)
        pid = os.fork()
        if pid == 0:
            self._be_the_program(limits, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        ended = os.pidfd_open(pid)
        reason = self._watch(ended, limits)
        status = self._finish(pid)
        answer = {"ending": reason or "exited", "code": status, "cpu": self._cpu()}
        with contextlib.suppress(BrokenPipeError):  # Nobody is left to hear it.
            self._control.send(json.dumps(answer).encode())

    def _be_the_program(self, limits: Limits, descriptors: list[int]) -> None:
        job_file, stdin, stdout, report = descriptors
        os.setsid()
        nothing = os.open(os.devnull, os.O_WRONLY)
        for source, target in ((stdin, 0), (stdout, 1), (nothing, 2)):
            os.dup2(source, target)
        close_all_but(0, 1, 2, job_file, report, self._control.fileno())
        with open(job_file, encoding="utf-8") as file:
            job = json.load(file)
        try:
            self._confine(limits)
        except OSError as error:  # No fault of the program's: this is not an answer.
            self._control.send(json.dumps({"broken": str(error)}).encode())
            os._exit(1)
        self._control.close()
        os.environ.update(HOME=os.getcwd(), TMPDIR=os.getcwd())
        # The interpreter comes to an ordinary end, as it does after any script.
        sys.exit(self._perform(job, report))

    def _watch(self, ended: int, limits: Limits) -> str:
        """Wait for the program's first process; why it has to be ended early, if it has to be."""
        events = select.poll()
        events.register(ended, select.POLLIN)
        events.register(self._control, select.POLLIN)  # Only its end is ever to be read.
        while True:
            ready = {descriptor for descriptor, _ in events.poll(1000 * TICK)}
            if ended in ready:
                return ""
            if ready or os.getppid() != self._parent:
                return "stopped"
            reason = self._excess(limits)
            if reason:
                return reason

    def _excess(self, limits: Limits) -> str:
        """Which limit is exceeded, if any."""
        used = self._crowd.usage()
        elapsed = time.monotonic() - self._began
        if self._cpu() + used.cpu_seconds > limits["seconds"]:
            return "cpu time"
        if elapsed > min(limits["wall_seconds"], limits["seconds"] + used.waited_seconds):
            return "time"
        if used.memory_bytes > limits["memory_bytes"]:
            return "memory"
        if used.processes > limits["processes"]:
            return "processes"
        return ""

    def _cpu(self) -> float:
        """Processor time of the processes that have ended."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime

    def _finish(self, pid: int) -> int:
        """End every process of the program and wait for it; the exit code of the first."""
        status = 0
        while True:
            self._crowd.kill()
            try:
                done, how = os.waitpid(-1, 0)
            except ChildProcessError:
                return status
            if done == pid:
                status = os.waitstatus_to_exitcode(how)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except OSError as error:
        if error.errno != errno.EPERM:
            raise


def receive_job(control: socket.socket) -> tuple[bytes, list[int]]:
    """The next message; empty when there is going to be none."""
    message, descriptors, _, _ = socket.recv_fds(control, MESSAGE, 4)
    return message, descriptors
