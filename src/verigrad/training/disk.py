"""Files that are whole or not there, on the disk when it is said so, and errors in one line."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from verigrad.errors import StorageError
from verigrad.flushing import flush


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one line that a file cannot be written, and why.

    Raises:
        StorageError: what is done inside fails because of the file system.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise StorageError(
            f"{path} cannot be written: {why}; what was saved before is as it was; free or mend "
            "the disk, then go on with: verigrad train --resume RUN"
        ) from error


def remove(path: Path) -> None:
    """Remove a folder with what is in it, or a file, or a link, whose target stays.

    Raises:
        OSError: it cannot be removed, or is not there.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def write_text(path: Path, text: str, *, flushed: bool = True) -> None:
    """Write a file so that it is either the old one or the new one, never half of it.

    Args:
        path: the file.
        text: its new content.
        flushed: whether to wait until it is on the disk.

    Raises:
        StorageError: it cannot be written; the old one is as it was.
    """
    with writing(path):
        partial = path.with_name(path.name + ".partial")
        partial.write_text(text, encoding="utf-8")
        if flushed:
            flush(partial)
        os.replace(partial, path)


def write_json(path: Path, value: Any, *, flushed: bool = True) -> None:
    """The same for a value as JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n", flushed=flushed)
