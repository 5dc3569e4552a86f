"""The process that a verifier runs in: ``python -m verigrad.verifiers.worker PARENT``.

Standard input is a socket. Through it come the verifier, once, and then calls; through it go
verdicts. The process ends with the one that started it, and when the socket is closed.
"""

import ctypes
import json
import os
import pickle
import resource
import signal
import socket
import sys
import threading
import time
from dataclasses import asdict
from math import inf

from verigrad.errors import VerigradError
from verigrad.types import FailureKind, Verdict
from verigrad.verifiers import frames
from verigrad.verifiers.boundary import Verifier, describe, verify
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.transport import unpack

_SET_PDEATHSIG = 1

MOST = 2**40
"""No message of the process that started this one is too long."""


def main() -> None:
    """Serve calls until there are no more."""
    end_with(int(sys.argv[1]))
    connection = socket.socket(fileno=os.dup(0))
    silence(0, 1)
    # What a verifier forks is not this worker: it must not answer in its place.
    os.register_at_fork(after_in_child=connection.close)
    try:
        shipment, limits = pickle.loads(frames.receive(connection, MOST, inf))  # noqa: S301
        verifier = unpack(shipment)
    except BaseException as error:  # noqa: BLE001  a verifier's module may raise anything
        said = str(error) if isinstance(error, VerigradError) else describe(error)
        frames.send(connection, json.dumps({"error": said}).encode(), inf)
        return
    silence(2)
    limit_memory(limits.memory_bytes)
    frames.send(connection, json.dumps({"ready": True}).encode(), inf)
    while True:
        try:
            request = frames.receive(connection, MOST, inf)
        except frames.ClosedError:
            return
        frames.send(connection, answer(verifier, request, limits), inf)


def answer(verifier: Verifier, request: bytes, limits: Limits) -> bytes:
    """Make one call.

    When its processor time is used up, the kernel ends the process: no code has to come to rest
    for that, nor to be in a state to be interrupted.
    """
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds)
    try:
        completion, reference = pickle.loads(request)  # noqa: S301  from who started this process
        verdict = verify(verifier, completion, reference)
    except BaseException as error:  # noqa: BLE001  not even an interrupt is for this process
        verdict = Verdict.failed(describe(error))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)  # An alarm must not go off in the next call.
    return _written(verdict, limits.output_bytes)


def _written(verdict: Verdict, room: int) -> bytes:
    written = json.dumps(asdict(verdict)).encode()
    if len(written) > room:
        why = f"bad value: the verdict takes {len(written)} bytes; at most {room} are allowed"
        return json.dumps(asdict(Verdict.failed(why, FailureKind.BAD_VALUE))).encode()
    return written


def silence(*descriptors: int) -> None:
    """Have what is written to descriptors go nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def limit_memory(more: int) -> None:
    """Let the address space grow by a number of bytes, and no further."""
    if sys.platform != "linux":
        return  # Elsewhere the kernel does not hold to it.
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = now + more if hard == resource.RLIM_INFINITY else min(now + more, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def end_with(parent: int) -> None:
    """End this process when another does.

    On Linux the kernel sees to it, even while this process is in a loop of its own. Elsewhere a
    thread does, which a loop outside Python can hold up.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # It has ended before it could be noticed.
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
