"""Hands a program to an attendant, and collects what comes back without being held up by it."""

import fcntl
import json
import os
import secrets
import select
import socket
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from verigrad.verifiers.sandbox.base import Ending, Outcome, Program, SandboxError, SandboxLimits
from verigrad.verifiers.sandbox.report import read_report

GRACE = 5.0
"""Seconds beyond the wall limit after which the attendant itself must be broken."""

_ENDINGS = {
    "exited": Ending.EXITED,
    "cpu time": Ending.TIME,
    "time": Ending.TIME,
    "memory": Ending.MEMORY,
    "processes": Ending.PROCESSES,
}


def exchange(control: socket.socket, program: Program, limits: SandboxLimits) -> Outcome:
    """Have one program run.

    Args:
        control: an attendant waits at its other end.
        program: what to run.
        limits: what it may use.

    Raises:
        SandboxError: there was no answer.
    """
    began = time.monotonic()
    mark = secrets.token_hex(16)
    job = {
        "mark": mark,
        "room": limits.output_bytes,
        "sources": program.sources,
        "calls": program.calls,
    }
    with ExitStack() as opened:
        stdout = _Pipe(opened, limits.output_bytes)
        report = _Pipe(opened, limits.output_bytes + 2**12)
        # A program's standard output is of interest only if it is a script.
        sink = os.open(os.devnull, os.O_WRONLY)
        opened.callback(os.close, sink)
        sent = (
            _file(opened, json.dumps(job).encode()),
            _file(opened, program.stdin),
            stdout.writing if program.calls is None else sink,
            report.writing,
        )
        try:
            socket.send_fds(control, [json.dumps(asdict(limits)).encode()], sent)
        except OSError as error:
            raise SandboxError(f"the sandbox does not take a program: {error}") from error
        stdout.close_writing()
        report.close_writing()
        answer = _collect(control, stdout, report, limits, began)
    said = read_report(bytes(report.read), mark)
    overfull = stdout.overfull or report.overfull
    return Outcome(
        ending=Ending.OUTPUT if overfull else _ENDINGS[answer["ending"]],
        exit_code=answer["code"],
        stdout=bytes(stdout.read[: limits.output_bytes]),
        values=said.values,
        completed=said.completed,
        detail=said.detail,
        error=said.error,
        seconds=time.monotonic() - began,
    )


class _Pipe:
    """A pipe whose reading end is read here, into memory, up to a number of bytes and one more."""

    def __init__(self, opened: ExitStack, room: int) -> None:
        reading, self.writing = os.pipe()
        self.reading = reading
        self.read = bytearray()
        self._room = room
        self._ends = {end: opened.enter_context(ExitStack()) for end in (reading, self.writing)}
        for end, stack in self._ends.items():
            stack.callback(os.close, end)
        os.set_blocking(reading, False)

    @property
    def overfull(self) -> bool:
        return len(self.read) > self._room

    def close_writing(self) -> None:
        self._ends[self.writing].close()

    def close(self) -> None:
        """Stop reading: who writes on gets an error."""
        self._ends[self.reading].close()

    def take(self) -> bool:
        """Read what is there; False when there is nothing more to read."""
        try:
            some = os.read(self.reading, min(2**16, self._room + 1 - len(self.read)))
        except BlockingIOError:
            return True
        self.read += some
        return bool(some) and not self.overfull

    def take_rest(self) -> None:
        """Read what is left, without waiting for whoever may still hold the pipe open."""
        before = -1
        while len(self.read) > before:
            before = len(self.read)
            if not self.take():
                return


def _file(opened: ExitStack, content: bytes) -> int:
    """A descriptor of a file in memory that can be read and not changed."""
    descriptor = os.memfd_create("job", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    opened.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def _collect(
    control: socket.socket, stdout: _Pipe, report: _Pipe, limits: SandboxLimits, began: float
) -> dict[str, Any]:
    """Read until the attendant answers, which it does when no process of the program is left."""
    events = select.poll()
    pipes = {stdout.reading: stdout, report.reading: report}
    for descriptor in (control.fileno(), *pipes):
        events.register(descriptor, select.POLLIN)
    deadline = began + limits.wall_seconds + GRACE
    while (left := deadline - time.monotonic()) > 0:
        ready = {descriptor for descriptor, _ in events.poll(1000 * left)}
        for descriptor in ready & pipes.keys():
            if not pipes[descriptor].take():
                events.unregister(descriptor)
                pipes.pop(descriptor).close()
        if control.fileno() in ready:
            answer = _answer(control)
            for pipe in pipes.values():
                pipe.take_rest()
            return answer
    raise SandboxError(f"the sandbox gave no answer within {limits.wall_seconds + GRACE:g} s")


def _answer(control: socket.socket) -> dict[str, Any]:
    message = control.recv(4096)
    answer: dict[str, Any] = json.loads(message) if message else {}
    if "ending" not in answer:
        raise SandboxError(f"the sandbox broke down while a program ran in it: {answer}")
    return answer
