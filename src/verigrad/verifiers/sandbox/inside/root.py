"""A file system in which there is nothing but an interpreter and an empty folder."""

import os

from . import linux

WORK = "/work"
"""The program's working directory; empty, and gone with the program."""

_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64")
DEVICES = ("null", "urandom")
"""Not zero, whose shared memory nobody counts."""


def readable(prefix: str) -> list[str]:
    """The folders of the machine that a program may read: the interpreter's and the libraries'.

    Args:
        prefix: where the interpreter is installed.
    """
    folders = [prefix, *(folder for folder in _LIBRARIES if os.path.isdir(folder))]
    inside = [f for f in folders if not f.startswith(prefix.rstrip("/") + "/")]
    return inside


def enter(prefix: str) -> None:
    """Leave the machine's file system for one with the interpreter, two devices and WORK.

    This process must be in a mount namespace of its own, with the right to mount.

    Raises:
        OSError: the kernel does not let it.
    """
    linux.mount("none", "/", flags=linux.RECURSIVE | linux.PRIVATE)
    # Any two folders that exist everywhere: what is mounted on one is seen by this process only.
    new = _empty_file_system("/var" if prefix.startswith("/tmp/") else "/tmp")
    for folder in readable(prefix):
        _show(folder, new)
    os.mkdir(f"{new}/dev")
    for device in DEVICES:
        target = f"{new}/dev/{device}"
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        linux.mount(f"/dev/{device}", target, flags=linux.BIND)
    os.mkdir(new + WORK)
    os.symlink(WORK, f"{new}/tmp")
    os.mkdir(f"{new}/proc")
    linux.mount("/proc", f"{new}/proc", flags=linux.BIND | linux.RECURSIVE)
    linux.enter_root(new)
    flags = linux.READ_ONLY | linux.REMOUNT | linux.BIND | linux.NO_SUID
    linux.mount("none", "/", flags=flags)


def _empty_file_system(folder: str) -> str:
    linux.mount("tmpfs", folder, "tmpfs", linux.NO_SUID, "mode=755,size=1m")
    return folder


def _show(folder: str, new: str) -> None:
    """Make a folder visible under its own name, for reading only; a link stays a link."""
    target = new + folder
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(folder):
        os.symlink(os.readlink(folder), target)
        return
    os.makedirs(target, exist_ok=True)
    linux.mount(folder, target, flags=linux.BIND | linux.RECURSIVE)
    linux.restrict_mount(target, linux.READ_ONLY | linux.NO_SUID | linux.NO_DEVICES)


def own_processes() -> int:
    """A descriptor of a /proc of this process's namespace, which no path leads to.

    The /proc of the machine, which the kernel wants to see before it mounts another, goes with it.
    """
    linux.mount("proc", WORK, "proc", linux.NO_SUID | linux.NO_DEVICES | linux.NO_EXEC)
    descriptor = os.open(WORK, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    linux.detach(WORK)
    linux.detach("/proc")
    return descriptor


def empty_work(size: int, owner: int | None) -> None:
    """Put an empty file system of a number of bytes at WORK, and go there."""
    owned = "" if owner is None else f",uid={owner},gid={owner}"
    options = f"mode=700,size={size},nr_inodes=1024{owned}"
    linux.mount("tmpfs", WORK, "tmpfs", linux.NO_SUID | linux.NO_DEVICES, options)
    os.chdir(WORK)
