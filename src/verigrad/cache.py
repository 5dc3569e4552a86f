"""The user's cache: what is made once and kept, such as a converted model or an index of a file."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from verigrad.errors import UserError


def cache_folder() -> Path:
    """Where everything is kept that can be made again.

    ``$VERIGRAD_CACHE``, else ``$XDG_CACHE_HOME/verigrad``, else ``~/.cache/verigrad``.
    """
    if own := os.environ.get("VERIGRAD_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "verigrad"


def publish(write: Callable[[Path], None], target: Path) -> None:
    """Make a folder appear complete or not at all.

    ``write`` fills a folder beside ``target``, which is then renamed. A process that is killed
    leaves no ``target``; of two that work at once the second finds it made and drops its own.

    Raises:
        UserError: the parent folder cannot be made or written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=target.parent) as scratch:
            folder = Path(scratch) / target.name
            write(folder)
            _rename_unless_made(folder, target)
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {error}; VERIGRAD_CACHE names another folder for what is kept"
        ) from error


def _rename_unless_made(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
