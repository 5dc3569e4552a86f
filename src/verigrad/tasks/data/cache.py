"""Where indexes are kept, so that a file is read through once and not again for every run."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from verigrad.errors import TaskError
from verigrad.hashing import stable_hash

FOLDER_KEY = "VERIGRAD_CACHE"


def cache_folder() -> Path:
    """The folder that VERIGRAD_CACHE names, or ``verigrad`` in the user's own cache."""
    named = os.environ.get(FOLDER_KEY)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "verigrad"


def cached(name: str, key: object, make: Callable[[Path], None]) -> Path:
    """The folder that was made for a key, or a new one.

    It is made beside its name and then renamed, so that there is never half of one. An entry may be
    deleted at any time; it is made again.

    Args:
        name: begins the name of the folder, for people.
        key: everything that the content depends on.
        make: writes the content into a folder.

    Raises:
        TaskError: the cache cannot be written; or as make does.
    """
    root = cache_folder() / "data"
    entry = root / f"{name}-{stable_hash(json.dumps(key, sort_keys=True)):016x}"
    if entry.is_dir():
        return entry
    try:
        root.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix="partial-", dir=root))
    except OSError as error:
        raise TaskError(
            f"the index of {name} cannot be written in {root} ({error.strerror}); name another "
            f"folder in the environment variable {FOLDER_KEY}"
        ) from None
    try:
        make(partial)
        try:
            partial.rename(entry)
        except OSError:
            if not entry.is_dir():  # Unless another process has made it meanwhile.
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return entry
