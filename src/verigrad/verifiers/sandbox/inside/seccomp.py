"""A seccomp filter: the system calls that no Python program of a test needs are refused.

What is not listed here and is known when this was written is allowed; any newer call is answered
"not implemented", as an older kernel would. The filter is a program of the kernel's packet-filter
machine: each instruction is (code, jump if true, jump if false, operand).
"""

import ctypes
import errno
import mmap
import platform
import socket
import struct

from . import linux

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW = 0x7FFF0000
_ERROR = 0x00050000
_KILL = 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _FOURTH_ARGUMENT = 0, 4, 16, 40

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_NEWEST = 451
"""cachestat. What came later has not been looked at."""

_COLUMNS = ("x86_64", "aarch64")

_REFUSED = {
    # Other processes, their memory and their descriptors.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # Namespaces and mounts.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # Keys, and parts of the kernel with a history of holes.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "vmsplice": (278, 75),
    # Memory that no limit of a process counts.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    # The machine.
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "personality": (135, 92),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "vhangup": (153, 58),
}
"""Refused with "not permitted"; the numbers on x86-64 and on 64-bit ARM."""

_REFUSED_X86 = {"iopl": 172, "ioperm": 173, "modify_ldt": 154, "uselib": 134}

_MMAP = (9, 222)
_SOCKET = (41, 198)
_CLONE = (56, 220)
_CLONE3 = (435, 435)

_NAMESPACES = (
    linux.NEW_MOUNTS
    | linux.NEW_UTS
    | linux.NEW_IPC
    | linux.NEW_USERS
    | linux.NEW_PIDS
    | linux.NEW_NETWORK
    | linux.NEW_CONTROL_GROUPS
)
"""Every flag of clone that makes a namespace."""


def program() -> bytes:
    """The filter for this machine.

    Raises:
        OSError: the machine's processor is neither x86-64 nor 64-bit ARM.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"seccomp: the system calls of {machine} are not known")
    column = _COLUMNS.index(machine)
    refused = {numbers[column] for numbers in _REFUSED.values()}
    if machine == "x86_64":
        refused |= set(_REFUSED_X86.values())
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        # Numbers this high are newer than the table, or the 32-bit calls of x86-64.
        (_AT_LEAST, 0, 1, _NEWEST + 1),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
        # clone3 hides its flags behind a pointer; the C library falls back to clone.
        (_EQUAL, 0, 1, _CLONE3[column]),
        (_RETURN, 0, 0, _ERROR | errno.ENOSYS),
    ]
    for number in sorted(refused):
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    lines += [
        # Shared memory without a file stays when it is no longer in sight of any account.
        (_EQUAL, 0, 5, _MMAP[column]),
        (_LOAD, 0, 0, _FOURTH_ARGUMENT),
        (_ANY_BIT, 0, 2, mmap.MAP_ANONYMOUS),
        (_ANY_BIT, 0, 1, mmap.MAP_SHARED),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 4, _SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 1, 0, socket.AF_UNIX),
        (_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
        (_EQUAL, 0, 3, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY_BIT, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_char_p))


def install(lines: bytes) -> None:
    """Put this process, and all that it starts, under the filter for good."""
    linux.no_new_privileges()
    linux.filter_calls(ctypes.byref(_Program(len(lines) // 8, lines)))
