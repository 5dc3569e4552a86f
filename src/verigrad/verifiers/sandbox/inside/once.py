"""One attendant and one program, in namespaces that another tool has made."""

import os
import socket

from . import linux, root, seccomp
from .attend import Attendant, Namespace, receive_job
from .confine import Limits, give_up_privileges, set_limits

READY = "/ready"
"""Holds this package and the namespace's /proc, out of sight of a program of another user's."""


def once(descriptor: int, uid: int | None) -> None:
    """Answer one job; this process is the first of its namespace of processes.

    Args:
        descriptor: of the socket that the job comes through.
        uid: the user to become before the program runs; None to stay who this is.
    """
    control = socket.socket(fileno=descriptor)
    calls = seccomp.program()
    proc = os.open(f"{READY}/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def confine(limits: Limits) -> None:
        os.chdir(root.WORK)
        os.environ.pop("PWD", None)  # The tool's own addition.
        if uid is not None:
            os.chown(root.WORK, uid, uid)
        set_limits(limits, count_processes=True)
        give_up_privileges(uid, calls)

    linux.die_with_parent()
    Attendant(control, Namespace(proc), confine).attend(*receive_job(control))
