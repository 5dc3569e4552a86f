"""Text for a terminal: a model, a file or a name may hold anything, and none of it is obeyed."""

import os
import unicodedata
from typing import TextIO


def give_up(stream: TextIO) -> None:
    """Give what Python still flushes to a stream as it exits somewhere to go.

    Its reader has gone, or the disk that it is written to is full.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str) -> str:
    r"""Text with its control characters shown rather than obeyed; newlines and tabs stay.

    Example: an escape character becomes the four characters ``\x1b``.
    """
    return "".join(char if char in "\n\t" or _is_harmless(char) else _shown(char) for char in text)


def one_line(text: str) -> str:
    """The same for what has to stay on one line, so that no text can pass for a line of ours."""
    return "".join(char if _is_harmless(char) else _shown(char) for char in text)


def _is_harmless(char: str) -> bool:
    """Neither control, format, surrogate, private nor unassigned, nor a separator of lines."""
    category = unicodedata.category(char)
    return category[0] != "C" and category not in ("Zl", "Zp")


def _shown(char: str) -> str:
    return f"\\x{ord(char):02x}"
