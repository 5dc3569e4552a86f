"""One run, one folder: a lock that the system releases when the process that holds it ends."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from verigrad.errors import RunFolderError
from verigrad.training.disk import writing

NAME = "run.lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run folder; the lock goes with the process, even one that is killed.

    The file stays: to remove it would let a third run make and lock another one of its name.

    Raises:
        RunFolderError: another run holds it; names the process. Or the file system has no locks.
        StorageError: the file cannot be made.
    """
    path = folder / NAME
    with writing(path):
        file = path.open("a+b")
    with file:
        if not _take(file):
            file.seek(0)
            holder = file.read().decode(errors="replace").strip() or "another process"
            raise RunFolderError(
                f"{folder} is being written by {holder}; two runs in one folder would spoil each "
                "other, so wait for that one or end it"
            )
        with writing(path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
            file.flush()
        yield


if sys.platform == "win32":
    import msvcrt

    FAR = 1 << 30
    """Windows locks bytes, and others cannot read them: one beyond the text."""

    def _take(file: BinaryIO) -> bool:
        file.seek(FAR)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _take(file: BinaryIO) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise RunFolderError(
                f"{file.name} cannot be locked: {error.strerror}; without a lock two runs in one "
                "folder would spoil each other, so put run.folder on another file system"
            ) from error
        # What is forked from here on must not hold the lock when this process has ended.
        os.register_at_fork(after_in_child=file.close)
        return True
