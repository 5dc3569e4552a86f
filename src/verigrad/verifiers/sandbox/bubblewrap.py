"""A sandbox made by bubblewrap, anew for every program."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from verigrad.verifiers.sandbox.base import (
    Outcome,
    Program,
    SandboxLimits,
    SandboxUnavailableError,
    Strength,
)
from verigrad.verifiers.sandbox.exchange import exchange
from verigrad.verifiers.sandbox.inside.once import READY
from verigrad.verifiers.sandbox.inside.root import DEVICES, WORK, readable
from verigrad.verifiers.sandbox.warm import ENVIRONMENT, FOLDER, inside_command, interpreter

_NOBODYS = 0x60000000
"""A user of this number and the process's, which owns nothing, stands in for root."""


class Bubblewrap:
    """Linux namespaces and an empty root by the tool of that name; our own filter and limits."""

    name = "bubblewrap"
    strength = Strength.ISOLATED

    def __init__(self) -> None:
        """Find the tool and try it.

        Raises:
            SandboxUnavailableError: it is not installed, or does not work on this machine.
        """
        tool = shutil.which("bwrap")
        if tool is None:
            raise SandboxUnavailableError("bwrap is not installed")
        self._tool = tool
        tried = subprocess.run(
            [*self._command(2**20), interpreter(), "-c", ""],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
        )
        if tried.returncode != 0:
            raise SandboxUnavailableError(tried.stderr.decode("utf-8", "replace").strip()[-200:])

    def run(self, program: Program, limits: SandboxLimits) -> Outcome:
        """Run a program to its end in a new sandbox.

        Raises:
            SandboxError: the sandbox itself failed.
        """
        uid = _NOBODYS + os.getpid() if os.geteuid() == 0 else None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                start = f"from inside.once import once; once({theirs.fileno()}, {uid})"
                process = subprocess.Popen(
                    [*self._command(limits.file_bytes), *inside_command(READY, start)],
                    # Its own environment can be read inside, whatever it is told to clear.
                    env=ENVIRONMENT,
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            try:
                outcome = exchange(ours, program, limits)
                process.wait(timeout=10)
            finally:
                process.kill()  # The kernel ends all that is inside with it.
                process.wait()
        return outcome

    def close(self) -> None:
        """Nothing stands ready."""

    def _command(self, size: int) -> list[str]:
        command = [self._tool, "--unshare-all", "--die-with-parent", "--as-pid-1", "--new-session"]
        if os.geteuid() == 0:
            # Without users of its own: as root in them, the limit of processes would not hold.
            command = [*command[:1], *_NAMESPACES, *command[2:]]
            for right in ("SETUID", "SETGID", "KILL", "CHOWN", "SETPCAP"):
                command += ["--cap-add", f"CAP_{right}"]
        command += ["--perms", "0700", "--dir", READY, "--proc", f"{READY}/proc"]
        command += ["--ro-bind", f"{FOLDER}/inside", f"{READY}/inside"]
        for folder in readable(sys.base_prefix):
            for parent in reversed(Path(folder).parents[:-1]):
                command += ["--perms", "0755", "--dir", str(parent)]
            if os.path.islink(folder):
                command += ["--symlink", os.readlink(folder), folder]
            else:
                command += ["--ro-bind", folder, folder]
        command += ["--perms", "0755", "--dir", "/dev", "--symlink", WORK, "/tmp"]
        for device in DEVICES:
            command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
        return [*command, "--perms", "0700", "--size", str(size), "--tmpfs", WORK, "--chdir", WORK]


_NAMESPACES = (
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    "--unshare-cgroup-try",
)
