"""Waiting until files are on the disk, so that no loss of power leaves half of them."""

import os
from pathlib import Path


def flush(path: Path) -> None:
    """Have the system put a file's content, or a folder's entries, on the disk."""
    folder = path.is_dir()
    if os.name == "nt" and folder:
        return
    descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """Put a folder on the disk, with all that is in it."""
    for path in [*folder.rglob("*"), folder]:
        flush(path)
