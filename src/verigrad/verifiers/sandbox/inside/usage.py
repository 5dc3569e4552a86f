"""What processes use, read from a folder of the kind of /proc."""

import os
from collections.abc import Iterable
from typing import NamedTuple

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_MEMORY = ("RssAnon:", "RssShmem:")


class Usage(NamedTuple):
    """Of several processes together."""

    processes: int = 0
    """Processes and threads."""

    cpu_seconds: float = 0.0
    """Processor time, that of ended children included."""

    memory_bytes: int = 0
    """Resident memory that is not a file's; what forked processes share is counted for each."""

    waited_seconds: float = 0.0
    """The longest that one thread has waited for a processor to be free."""


def measure(proc: int, pids: Iterable[int]) -> Usage:
    """The usage of some processes; those that are gone count for nothing.

    Args:
        proc: a descriptor of the folder.
        pids: the processes, as the folder numbers them.
    """
    found = [usage for pid in pids if (usage := _of_one(proc, pid)) is not None]
    return Usage(
        processes=sum(one.processes for one in found),
        cpu_seconds=sum(one.cpu_seconds for one in found),
        memory_bytes=sum(one.memory_bytes for one in found),
        waited_seconds=max((one.waited_seconds for one in found), default=0.0),
    )


def _of_one(proc: int, pid: int) -> Usage | None:
    try:
        fields = _read(proc, f"{pid}/stat").rpartition(")")[2].split()
        status = _read(proc, f"{pid}/status")
        waited = _waited(proc, pid)
    except OSError:
        return None
    return Usage(
        processes=int(fields[17]),
        cpu_seconds=_TICK * sum(map(int, fields[11:15])),
        memory_bytes=sum(
            1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith(_MEMORY)
        ),
        waited_seconds=waited,
    )


def _waited(proc: int, pid: int) -> float:
    try:
        return int(_read(proc, f"{pid}/schedstat").split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0  # The kernel keeps no account of it.


def waited_in_turn(proc: int, pids: Iterable[int]) -> float:
    """Seconds that all threads of some processes have waited for a processor, added up.

    Where threads do nothing but wait for one another, that is how long busy processors hold them
    up; where they do not, it is more.

    Args:
        proc: a descriptor of the folder.
        pids: the processes, as the folder numbers them.
    """
    seconds = 0.0
    for pid in pids:
        try:
            tasks = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
        except OSError:  # It has ended.
            continue
        try:
            seconds += sum(_waited(tasks, int(task)) for task in os.listdir(tasks))
        except OSError:
            continue
        finally:
            os.close(tasks)
    return seconds


def _read(proc: int, name: str) -> str:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.read(descriptor, 4096).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def everyone(proc: int) -> list[int]:
    """Every process that the folder shows."""
    return [int(name) for name in os.listdir(proc) if name.isdecimal()]


def descendants(proc: int, ancestor: int) -> list[int]:
    """The processes that a process started, and those that they started, and so on."""
    children: dict[int, list[int]] = {}
    for pid in everyone(proc):
        try:
            parent = int(_read(proc, f"{pid}/stat").rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(pid)
    found = list(children.get(ancestor, []))
    for pid in found:
        found += children.get(pid, [])
    return found
