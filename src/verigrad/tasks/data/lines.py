"""The lines of a text file as bytes, with where each begins, and their text."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verigrad.errors import TaskError

LONGEST = 64 * 2**20
"""Bytes of the longest row that is read; a longer one is a mistake in the file."""

BOM = b"\xef\xbb\xbf"
OTHER_FILES = {
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"\x1f\x8b": "compressed with gzip; unpack it",
    b"PK\x03\x04": "a zip archive or a spreadsheet; unpack it, or export it as CSV in UTF-8",
    b"PAR1": "a Parquet file; let its name end in .parquet",
}
"""What a file is, and what to do with it, by its first bytes."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, or several that belong together."""

    offset: int
    """Bytes before it."""

    number: int
    """Of its first line in the file, from 1."""

    content: bytes
    """With its end."""


def lines_of(path: Path, label: str) -> Iterator[Line]:
    """The lines of a file, one at a time; a byte order mark is no part of the first.

    Args:
        path: the file.
        label: what messages call it.

    Raises:
        TaskError: the file cannot be read, is no text, or has a line that is too long.
    """
    try:
        with path.open("rb") as file:
            offset = _begin(file.read(4), label)
            file.seek(offset)
            number = 0
            while content := file.readline(LONGEST + 1):
                number += 1
                if len(content) > LONGEST:
                    raise TaskError(
                        f"{label}: line {number} is longer than {LONGEST >> 20} MB; expected one "
                        "row a line (a .jsonl file that holds one JSON array is a .json file)"
                    )
                yield Line(offset, number, content)
                offset += len(content)
    except OSError as error:
        raise TaskError(f"{label}: cannot be read ({error.strerror})") from None


def _begin(first: bytes, label: str) -> int:
    """The bytes before the text."""
    for start, words in OTHER_FILES.items():
        if first.startswith(start):
            raise TaskError(f"{label}: is {words}")
    return len(BOM) if first.startswith(BOM) else 0


def text_of(content: bytes, number: int, label: str) -> str:
    """Decode a line, whatever the locale.

    Args:
        content: of the line.
        number: of the line in its file.
        label: what messages call the file.

    Raises:
        TaskError: it is not UTF-8, or holds a NUL byte.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line = number + before.count(b"\n")
        place = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        raise TaskError(
            f"{label}: line {line}, character {place} is not UTF-8 text (byte "
            f"0x{error.object[error.start]:02x}); save the file as UTF-8"
        ) from None
    if "\0" in text:
        line = number + text[: text.index("\0")].count("\n")
        raise TaskError(
            f"{label}: line {line} holds a NUL character; the file is damaged, binary, or not "
            "UTF-8; save it as UTF-8"
        )
    return text
