"""The user's cache: what is made once and kept, such as a converted model or an index of a file."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from verigrad.errors import UserError
from verigrad.flushing import flush_folder

UNFINISHED = ".unfinished-"
"""Begins the names of folders that are being filled."""

LONGEST_SECONDS = 24 * 3600.0
"""Nothing takes longer to be made; what is older was left by a process that was killed."""


def cache_folder() -> Path:
    """Where everything is kept that can be made again.

    ``$VERIGRAD_CACHE``, else ``$XDG_CACHE_HOME/verigrad``, else ``~/.cache/verigrad``.

    Raises:
        UserError: it is to be in the home folder of a user who has none here.
    """
    own, base = os.environ.get("VERIGRAD_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        if own:
            return Path(own).expanduser()
        return (Path(base) if base else Path.home() / ".cache") / "verigrad"
    except RuntimeError as error:
        raise UserError(
            f"the cache is to be in {own or '~/.cache'}, and there is no such home folder; set "
            "VERIGRAD_CACHE to a folder"
        ) from error


def publish(write: Callable[[Path], None], target: Path) -> None:
    """Make a folder appear complete or not at all.

    ``write`` fills a folder beside ``target``, which is then renamed. A process that is killed, or
    a loss of power, leaves no ``target``; of two that work at once the second finds it made and
    drops its own.

    Raises:
        UserError: the parent folder cannot be made or written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target.parent)
        with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=target.parent) as scratch:
            folder = Path(scratch) / target.name
            write(folder)
            flush_folder(folder)
            _rename_unless_made(folder, target)
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {error}; VERIGRAD_CACHE names another folder for what is kept"
        ) from error


def _sweep(parent: Path) -> None:
    """Remove what processes that were killed have left unfinished, once it is surely theirs."""
    for left in parent.glob(f"{UNFINISHED}*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > LONGEST_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _rename_unless_made(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
