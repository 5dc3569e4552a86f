"""Takes from a process whatever the program it is going to run must not have."""

import os
import resource
from typing import TypedDict

from . import linux, seccomp

STACK = 256 * 2**20
"""Bytes of stack at most, within the limit of memory: deep recursion is no crime."""

OPEN_FILES = 64


class Limits(TypedDict):
    """What a program may use."""

    seconds: float
    """Of processor time, and as long again of anything but waiting for a processor."""

    wall_seconds: float
    """From beginning to end."""

    memory_bytes: int
    """Address space of one process, and resident memory of all together."""

    processes: int
    """Processes and threads at a time."""

    file_bytes: int
    """Of one file, and where there is a file system of its own, of all together."""


def set_limits(limits: Limits, *, count_processes: bool) -> None:
    """Set the limits that the kernel watches for each process.

    Args:
        limits: what to set.
        count_processes: whether to limit the number of processes too. That limit is one of all that
            a user runs, so it is of use only where the user runs nothing else.
    """
    # A little more than the limit that is watched over all processes, which says what happened.
    linux.limit(resource.RLIMIT_CPU, int(limits["seconds"]) + 2)
    linux.limit(resource.RLIMIT_AS, limits["memory_bytes"])
    linux.limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    linux.limit(resource.RLIMIT_STACK, min(STACK, limits["memory_bytes"]))
    linux.limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    linux.limit(resource.RLIMIT_CORE, 0)
    linux.limit(resource.RLIMIT_MEMLOCK, 0)
    linux.limit(resource.RLIMIT_MSGQUEUE, 0)
    if count_processes:
        linux.limit(resource.RLIMIT_NPROC, limits["processes"])


def give_up_privileges(uid: int | None, calls: bytes) -> None:
    """Become an ordinary user, if a number is given, and keep no right that root has.

    Args:
        uid: a user that owns nothing, for a process that is root.
        calls: the filter of system calls.
    """
    linux.bound_capabilities()
    if uid is not None:
        linux.become(uid)
    linux.drop_capabilities()
    linux.die_with_parent()
    seccomp.install(calls)


def close_all_but(*kept: int) -> None:
    """Close every descriptor that is not kept."""
    previous = -1
    for descriptor in [*sorted(kept), 2**20]:
        if descriptor > previous + 1:  # closerange(0, 0) would close them all.
            os.closerange(previous + 1, descriptor)
        previous = descriptor
