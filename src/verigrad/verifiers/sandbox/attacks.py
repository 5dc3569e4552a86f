"""Small, bounded attacks, to see by trying what a sandbox stops.

Each is a program with a function ``attack``, which returns a true value when it got what it wanted;
one that is to be ended early never returns.
``{...}`` is filled in with places on this machine that are made for the occasion.
"""

from dataclasses import dataclass, field, replace

from verigrad.verifiers.sandbox.base import SandboxLimits

_MB = 2**20

_LIMITS = SandboxLimits(
    seconds=2.0, wall_seconds=10.0, memory_bytes=192 * _MB, processes=24, file_bytes=8 * _MB
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """One thing that a hostile program may try."""

    name: str
    """In few words."""

    source: str
    """The program."""

    limits: SandboxLimits = field(default=_LIMITS)
    """What it is run with."""


def _quick(limits: SandboxLimits = _LIMITS) -> SandboxLimits:
    return replace(limits, seconds=0.5)


ATTACKS = (
    Attack(
        name="connect to a TCP port of this machine",
        source="""
import socket
def attack():
    socket.create_connection(("127.0.0.1", {tcp}), timeout=1).close()
    return True
""",
    ),
    Attack(
        name="send a UDP packet",
        source="""
import socket
def attack():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp}))
""",
    ),
    Attack(
        name="connect to a Unix socket without a file",
        source="""
import socket
def attack():
    socket.socket(socket.AF_UNIX).connect("\\0{abstract}")
    return True
""",
    ),
    Attack(
        name="write a file of this machine",
        source="""
def attack():
    return open({writable!r}, "w").write("x")
""",
    ),
    Attack(
        name="read a file of this machine",
        source="""
import os
def attack():
    for root in ("", "/proc/1/root", "/proc/%d/root" % os.getppid(), "../" * 20):
        try:
            return open(root + {secret!r}).read()
        except OSError:
            pass
""",
    ),
    Attack(
        name="read the environment of what started it",
        source="""
import os
def attack():
    if {canary!r} in os.environ:
        return True
    for pid in os.listdir("/proc"):
        try:
            if {canary!r}.encode() in open("/proc/" + pid + "/environ", "rb").read():
                return True
        except OSError:
            pass
""",
    ),
    Attack(
        name="see or signal a process of this machine",
        source="""
import os
def attack():
    os.kill({victim}, 0)
    return True
""",
    ),
    Attack(
        name="start very many processes",
        source="""
import os, time
def attack():
    for made in range(150):
        try:
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
        except OSError:
            return made > 48
    time.sleep(0.5)
    return True
""",
    ),
    Attack(
        name="take much memory in one process",
        source="""
def attack():
    return len(bytearray(400 << 20))
""",
    ),
    Attack(
        name="take much memory in many processes",
        source="""
import os, time
def attack():
    for _ in range(5):
        if os.fork() == 0:
            held = bytearray(100 << 20)
            time.sleep(20)
            os._exit(0)
    time.sleep(1)
    return True
""",
    ),
    Attack(
        name="hold shared memory that no process shows",
        source="""
import mmap
def attack():
    held = mmap.mmap(-1, 100 << 20)
    held.write(b"x" * len(held))
    held.madvise(mmap.MADV_DONTNEED)
    return True
""",
    ),
    Attack(
        name="compute without end",
        limits=_quick(),
        source="""
def attack():
    while True:
        pass
""",
    ),
    Attack(
        name="compute without end in children that end",
        limits=_quick(),
        source="""
import os, time
def attack():
    while True:
        if os.fork() == 0:
            end = time.process_time() + 0.05
            while time.process_time() < end:
                pass
            os._exit(0)
        os.wait()
""",
    ),
    Attack(
        name="sleep without end",
        limits=_quick(),
        source="""
import signal, time
def attack():
    for number in set(signal.Signals) - {{signal.SIGKILL, signal.SIGSTOP}}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(100)
""",
    ),
    Attack(
        name="write a very large file",
        source="""
def attack():
    with open("large", "wb") as file:
        for _ in range(32):
            file.write(bytes(1 << 20))
    return True
""",
    ),
    Attack(
        name="write many files",
        source="""
def attack():
    for number in range(6):
        with open("file%d" % number, "wb") as file:
            file.write(bytes(4 << 20))
    return True
""",
    ),
    Attack(
        name="leave a daemon behind",
        source="""
import os, sys, time
def attack():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            code = "import time; time.sleep(20)"
            os.execv(sys.executable, [sys.executable, "-c", code, {marker!r}])
        os._exit(0)
    time.sleep(0.2)
""",
    ),
    Attack(
        name="use a right of the administrator",
        source="""
import ctypes, os
def attack():
    c = ctypes.CDLL(None)
    got = [
        name
        for name, done in (
            ("unshare", c.unshare(0)),
            ("ptrace", c.ptrace(0, 0, 0, 0)),
            ("chroot", c.chroot(b".")),
            ("mount", c.mount(b"none", b"/", None, 0x44000, None)),
            ("shared memory", c.shmget(0, 4096, 0o600)),
            ("a message queue", c.msgget(0, 0o600)),
            ("setuid", c.setuid(0)),
            ("hidden files", c.memfd_create(b"x", 0)),
        )
        if done >= 0
    ]
    return got
""",
    ),
)
"""In the order in which they are tried."""
