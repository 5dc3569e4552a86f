"""The Linux calls that Python has no function for.

Each raises OSError with the name of the call, so that a sandbox which cannot be made says why.
"""

import ctypes
import os
import platform
import resource
import signal

NEW_MOUNTS = 0x00020000
NEW_CONTROL_GROUPS = 0x02000000
NEW_UTS = 0x04000000
NEW_IPC = 0x08000000
NEW_USERS = 0x10000000
NEW_PIDS = 0x20000000
NEW_NETWORK = 0x40000000

READ_ONLY = 0x1
NO_SUID = 0x2
NO_DEVICES = 0x4
NO_EXEC = 0x8
REMOUNT = 0x20
BIND = 0x1000
RECURSIVE = 0x4000
PRIVATE = 0x40000

_DETACH = 2
_AT_RECURSIVE = 0x8000
_SET_PDEATHSIG = 1
_SET_SECCOMP = 22
_CAPBSET_DROP = 24
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def _syscall(number: int, call: str, *arguments: object) -> int:
    _libc.syscall.restype = ctypes.c_long
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), call)


def unshare(flags: int) -> None:
    """Move this process, or for NEW_PIDS its next child, to new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount a file system, or with BIND a folder or file at another place."""
    done = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _check(done, f"mount {target}")


def detach(target: str) -> None:
    """Take a mount out of sight; files that are open stay usable."""
    _check(_libc.umount2(target.encode(), _DETACH), f"umount {target}")


def restrict_mount(target: str, attributes: int) -> None:
    """Set READ_ONLY, NO_SUID, ... on a mount and all that are mounted below it."""
    fields = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    _syscall(
        _MOUNT_SETATTR,
        f"mount_setattr {target}",
        ctypes.c_int(-100),
        ctypes.c_char_p(target.encode()),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.byref(fields),
        ctypes.c_size_t(32),
    )


def enter_root(folder: str) -> None:
    """Make a mount the root, and let go of the old one."""
    os.chdir(folder)
    here = ctypes.c_char_p(b".")
    _syscall(_PIVOT_ROOT[platform.machine()], "pivot_root", here, here)
    detach(".")
    os.chdir("/")


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    _check(_libc.prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl(PDEATHSIG)")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _check(_libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(CHILD_SUBREAPER)")


def no_new_privileges() -> None:
    """Make set-uid programs ordinary ones, for this process and all it starts."""
    _check(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")


def filter_calls(program: object) -> None:
    """Install a seccomp filter, given as a reference to its ``sock_fprog``."""
    _check(_libc.prctl(_SET_SECCOMP, 2, program, 0, 0), "prctl(SECCOMP)")


def drop_capabilities() -> None:
    """Give up every capability; none comes back by running a program."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(ctypes.byref(header), ctypes.byref(nothing)), "capset")


def bound_capabilities() -> None:
    """Take every capability from what this process may ever have."""
    capability = 0
    while _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1


def become(uid: int) -> None:
    """Change to a user and a group of this number, without other groups."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def unshare_users(flags: int) -> None:
    """New namespaces of users too, in which only this process's user and group exist."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(NEW_USERS | flags)
    for file, line in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{file}", "w") as handle:
            handle.write(line)


def limit(kind: int, value: int) -> None:
    """Set a resource limit, soft and hard, without ever raising the hard one."""
    hard = resource.getrlimit(kind)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))


def lift(kind: int) -> None:
    """Raise the soft resource limit, which a worker has set for itself, to the hard one."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (hard, hard))
