"""A process that is ready: it forks off one attendant and one program for every job.

It never sees a job, so that no program finds anything of another in its memory. What programs
commonly import is loaded before the first fork.
"""

import gc
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable

from . import linux, root, seccomp
from .attend import Attendant, Family, Namespace, receive_job
from .confine import Limits, give_up_privileges, set_limits
from .prepare import prepare


def serve(descriptor: int, isolated: bool, prefix: str) -> None:
    """Answer jobs until the other end of the socket is closed.

    Args:
        descriptor: of the socket.
        isolated: in namespaces of its own; otherwise with limits only.
        prefix: where the interpreter is installed.
    """
    control = socket.socket(fileno=descriptor)
    linux.die_with_parent()
    try:
        attend = _isolated(prefix) if isolated else _limited
    except OSError as error:
        control.send(json.dumps({"unavailable": str(error)}).encode())
        return
    prepare()
    gc.freeze()
    answer_jobs(control, attend)


def answer_jobs(control: socket.socket, attend: Callable[[socket.socket], None]) -> None:
    """Say that all is ready, and fork for every job until the other end of the socket is closed.

    Args:
        control: the socket.
        attend: takes a job from the socket and answers it, in the process that is forked for it.
    """
    control.send(json.dumps({"ready": os.getpid()}).encode())
    while control.recv(1, socket.MSG_PEEK):
        pid = os.fork()
        if pid == 0:
            attend(control)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        try:
            control.send(json.dumps({"gone": status}).encode())
        except BrokenPipeError:
            return


def _limited(control: socket.socket) -> None:
    """Run a job with nothing around it but limits, in a folder made for it."""
    message, descriptors = receive_job(control)
    folder = tempfile.mkdtemp(prefix="verigrad-", dir="/tmp")

    def confine(limits: Limits) -> None:
        os.chdir(folder)
        set_limits(limits, count_processes=False)

    Attendant(control, Family(), confine).attend(message, descriptors)
    # Not in a finally: the program's process leaves by an exception, through here.
    shutil.rmtree(folder, ignore_errors=True)


def _isolated(prefix: str) -> Callable[[socket.socket], None]:
    """Go into namespaces of its own, and return what runs a job in yet another.

    Raises:
        OSError: the kernel does not let it.
    """
    calls = seccomp.program()
    spaces = linux.NEW_MOUNTS | linux.NEW_NETWORK | linux.NEW_IPC | linux.NEW_UTS
    uid = None
    if os.geteuid() == 0:
        uid = _NOBODYS + os.getpid()
        linux.unshare(spaces)
    else:
        linux.unshare_users(spaces)
    root.enter(prefix)

    def confine(limits: Limits) -> None:
        root.empty_work(limits["file_bytes"], uid)
        set_limits(limits, count_processes=True)
        give_up_privileges(uid, calls)

    def attend(control: socket.socket) -> None:
        message, descriptors = receive_job(control)
        linux.unshare(linux.NEW_PIDS | linux.NEW_MOUNTS)
        linux.die_with_parent()
        pid = os.fork()
        if pid == 0:
            linux.die_with_parent()
            attendant = Attendant(control, Namespace(root.own_processes()), confine)
            attendant.attend(message, descriptors)
            os._exit(0)
        os.waitpid(pid, 0)

    return attend


_NOBODYS = 0x70000000
"""A user of this number and the process's, which owns nothing, stands in for root."""
