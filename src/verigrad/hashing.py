"""A hash that is the same in every process, on every machine, in every version.

Whatever has to be decided again in the same way, by a resume or by another rank, is decided by it:
the order of problems, the held-out split, the random number of each sampled token.
"""

import hashlib
from enum import StrEnum
from pathlib import Path


class Purpose(StrEnum):
    """What random numbers are for; those of different purposes are unrelated."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    ORDER = "order"
    ROWS = "rows"
    HELD_OUT = "held-out"


def stable_hash(*parts: object) -> int:
    """64 bits that depend on the text of the parts only.

    Example: ``stable_hash(0, "train", 3)`` is the same number everywhere, for ever.
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, which may be larger than memory, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
