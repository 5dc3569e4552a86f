"""What the machine offers, and how much of its memory this process takes."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")
"""Where Linux shows its files; a test has a tree of its own."""

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Names of options in glibc's ``malloc.h``: bytes of a piece from which on it is got from the
system, and given back, alone; free bytes at the end of the heap above which they are given back."""


def cores() -> int:
    """How many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory(root: Path = ROOT) -> int | None:
    """Bytes of memory that this process and those that share its limits may take altogether.

    The machine's, or the limit of its control group (a container has one), version 1 or 2, or of a
    group above it, where that is lower. None where the system does not say: only Linux does.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        total = 1024 * int(dict(line.split(":") for line in lines)["MemTotal"].split()[0])
    except (OSError, ValueError, KeyError):
        return None
    return min([total, *_group_limits(root)])


def resident(root: Path = ROOT) -> int | None:
    """Bytes of this process that are in memory now; None where the system does not say."""
    try:
        pages = int((root / "proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def keep_freed() -> None:
    """Have the C library keep memory that is freed for the next use, until :func:`give_back`.

    By default glibc gives large pieces back at once and gets them again as pages of zeros, at every
    step the same gigabytes. That takes most of the time of drawing tokens from a large vocabulary.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if choose is not None:
        for option, value in ((MMAP_THRESHOLD, 2**25), (TRIM_THRESHOLD, 2**31 - 1)):
            choose(option, value)


def give_back() -> None:
    """Give the system the memory that was freed and that the C library keeps for its next use.

    Of C libraries only glibc has to be asked.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _group_limits(root: Path) -> Iterator[int]:
    """The limits of this process's control groups and of those above them."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            folder, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        path = PurePosixPath(group.lstrip("/"))
        # A container may see its own group as the root, under a path that is not there.
        for part in (path, *path.parents):
            limit = _limit(folder / part / name)
            if limit is not None:
                yield limit


def _limit(path: Path) -> int | None:
    """The limit in a file; None for "max", or where there is no such file."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
