"""An interpreter in WebAssembly that is ready: it is forked for every job.

This process is ours, with the package wasmtime; the guest is CPython, compiled for WASI. When the
guest first reads its standard input it has loaded all that it needs. That read forks, and returns
in the fork only, with the job. So no program finds anything of another in its memory, and none
waits for an interpreter to start.
"""

import io
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import wasmtime

from . import linux
from .attend import Attendant, Family, receive_job
from .calls import NOT_SUPPORTED, Calls, ExitedError
from .confine import Limits
from .harness import Job
from .serve import answer_jobs

ROOM = 256 * 2**20
"""Bytes that the process may hold beside the guest's memory, such as its compiled code."""

_MODULES = ("values", "harness", "prepare", "guest")
_U32 = 2**32 - 1


def engine() -> wasmtime.Engine:
    """The engine that code is compiled for."""
    return wasmtime.Engine(wasmtime.Config())


def compile_module(source: str, target: str) -> None:
    """Compile an interpreter for this machine; many seconds.

    Args:
        source: its WebAssembly.
        target: the file to write.
    """
    try:
        module = wasmtime.Module.from_file(engine(), source)
    except wasmtime.WasmtimeError as error:
        sys.exit(_first_line(error))
    Path(target).write_bytes(module.serialize())


def serve(descriptor: int, compiled: str, environment: dict[str, str]) -> None:
    """Answer jobs until the other end of the socket is closed.

    Args:
        descriptor: of the socket.
        compiled: a file that compile_module wrote.
        environment: what the programs find in theirs.
    """
    control = socket.socket(fileno=descriptor)
    linux.die_with_parent()
    linux.lift(resource.RLIMIT_AS)
    os.chdir("/")
    try:
        host = _Host(control, compiled)
    except wasmtime.WasmtimeError as error:
        words = f"{compiled}: {_first_line(error)}"
        control.send(json.dumps({"unavailable": words, "damaged": True}).encode())
        return
    host.run(environment)


def _first_line(error: wasmtime.WasmtimeError) -> str:
    """What went wrong, without the chain of causes on the lines below."""
    return str(error).partition("\n")[0]


class _StartedError(Exception):
    """This process is the fork in which a job is to run."""

    def __init__(self, job: Job, report: int) -> None:
        super().__init__()
        self.job = job
        self.report = report


class _Memory:
    """A guest's memory, as its calls see it."""

    def __init__(self, caller: wasmtime.Caller) -> None:
        self._memory, self._caller = caller["memory"], caller

    def read(self, start: int, size: int) -> bytes:
        return bytes(self._memory.read(self._caller, start, start + size))

    def write(self, start: int, content: bytes) -> None:
        self._memory.write(self._caller, content, start)


class _Host:
    """Holds one guest."""

    def __init__(self, control: socket.socket, compiled: str) -> None:
        self._control = control
        machine = engine()
        self._module = wasmtime.Module.deserialize_file(machine, compiled)
        self._store = wasmtime.Store(machine)
        self._inputs: list[IO[bytes] | io.FileIO] = []
        # Until there is a job, whatever the guest says is of interest to us.
        self._mark, self._report = b"", 2

    def run(self, environment: dict[str, str]) -> None:
        """Start the guest, which comes to its end in the forks only."""
        calls = Calls(
            ["python", "-s", "-P", "-S", "-B", "-c", _first_words()],
            [f"{name}={value}" for name, value in environment.items()],
            self._read,
            self._said,
        )
        imports = [self._call(calls, each) for each in self._module.imports]
        guest = wasmtime.Instance(self._store, self._module, imports)
        try:
            guest.exports(self._store)["_start"](self._store)
        except ExitedError as exited:
            os._exit(exited.code & 0xFF)
        except (wasmtime.WasmtimeError, wasmtime.Trap, IndexError):
            if not self._inputs:
                raise
            # It has broken its own machine, as a process that a signal ends.
            os.kill(os.getpid(), signal.SIGABRT)

    def _call(self, calls: Calls, wanted: wasmtime.ImportType) -> wasmtime.Func:
        """What the guest calls by a name."""
        found: Callable[..., int] | None = getattr(calls, wanted.name, None)
        has_result = bool(wanted.type.results)

        def call(caller: wasmtime.Caller, *numbers: int) -> int | None:
            if found is None:
                return NOT_SUPPORTED
            # In WebAssembly no number has a sign by itself; those of 64 bits are not looked at.
            result = found(_Memory(caller), *(number & _U32 for number in numbers))
            return result if has_result else None

        return wasmtime.Func(self._store, wanted.type, call, access_caller=True)

    def _read(self, size: int) -> bytes:
        """Standard input: the job and its end, and then what the program is to read."""
        if not self._inputs:
            self._inputs = [io.BytesIO(self._next_job()), io.FileIO(0, closefd=False)]
        some = self._inputs[0].read(size)
        if not some and len(self._inputs) > 1:
            del self._inputs[0]
        return some

    def _next_job(self) -> bytes:
        """Fork for every job; each fork returns with one."""
        try:
            answer_jobs(self._control, self._attend)
        except _StartedError as started:
            self._mark, self._report = started.job["mark"].encode(), started.report
            return json.dumps(started.job).encode()
        os._exit(0)  # Nobody asks for more.

    def _attend(self, control: socket.socket) -> None:
        message, descriptors = receive_job(control)
        limits: Limits = json.loads(message)
        limits["memory_bytes"] += ROOM
        attendant = Attendant(control, Family(), self._confine, _start)
        attendant.attend(json.dumps(limits).encode(), descriptors)

    def _confine(self, limits: Limits) -> None:
        self._store.set_limits(memory_size=limits["memory_bytes"] - ROOM)
        linux.limit(resource.RLIMIT_CPU, int(limits["seconds"]) + 2)
        linux.limit(resource.RLIMIT_CORE, 0)

    def _said(self, text: bytes) -> None:
        """Pass on what the guest reports; anything else on its standard error is dropped."""
        left = text if text.startswith(self._mark) else b""
        while left:
            left = left[os.write(self._report, left) :]


def _start(job: Job, report: int) -> int:
    """Leave the attendant's code for the guest's."""
    raise _StartedError(job, report)


def _first_words() -> str:
    """The guest's program, which holds the text of all its modules: it can read no file of ours."""
    here = Path(__file__).parent
    texts = {name: (here / f"{name}.py").read_text(encoding="utf-8") for name in _MODULES}
    return f"""
import site, sys, types
site.setquit()
site.setcopyright()
site.sethelper()
sys.modules["inside"] = types.ModuleType("inside")
for name, text in {texts!r}.items():
    module = types.ModuleType("inside." + name)
    module.__package__ = "inside"
    sys.modules["inside." + name] = module
    exec(compile(text, name, "exec"), vars(module))
sys.exit(sys.modules["inside.guest"].main())
"""
