"""The index of a file of rows: 32 bytes a row, made in one pass that checks every row.

It says where a row begins, which line that is, and the hashes of the row's id and content. With it
a file is shuffled, split and looked up without being in memory.
"""

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verigrad.config.checks import shown
from verigrad.errors import TaskError
from verigrad.hashing import Purpose, stable_hash
from verigrad.tasks.data.columns import Item, Reader
from verigrad.tasks.data.lines import Line
from verigrad.tasks.data.rows import RowFile
from verigrad.types import Status
from verigrad.verifiers import TrlReward, Verifier, verify
from verigrad.verifiers.adapter import reference_for

if TYPE_CHECKING:
    import numpy as np

    Index = np.ndarray[tuple[int], np.dtype[np.void]]

ENTRY = struct.Struct("<QIIQQ")
FIELDS = [("offset", "<u8"), ("length", "<u4"), ("line", "<u4"), ("id", "<u8"), ("content", "<u8")]
CHECKED = 10_000
"""References of so many rows, the first ones, are shown to the verifier."""


def write_index(path: Path, file: RowFile, reader: Reader, verifier: Verifier) -> None:
    """Read a file through, check each row, and write its index.

    Args:
        path: where the index goes.
        file: the rows.
        reader: makes items of them.
        verifier: is shown the references of the first CHECKED rows.

    Raises:
        TaskError: a row cannot be used, two have the same id, or there is none.
    """
    kinds: dict[str, tuple[str, str]] = {}
    with path.open("wb") as out:
        for number, (line, row) in enumerate(file.scan()):
            place = place_of(file, line.number)
            item = reader.item(row, place)
            _check_kinds(item, reader.answers, place, kinds)
            if number < CHECKED:
                _check_reference(item, reader, place, verifier)
            content = stable_hash(Purpose.HELD_OUT, item.content)
            out.write(
                ENTRY.pack(
                    line.offset, len(line.content), line.number, stable_hash(item.id), content
                )
            )
    rows, shots = path.stat().st_size // ENTRY.size, reader.config.shots
    if rows <= shots:
        examples = f", of which data.shots takes {shots}" if shots else ""
        raise TaskError(
            f"{file.label}: holds {rows or 'no'} rows{examples}; a task needs at least one"
        )
    index = open_index(path, writable=True)
    _settle_ids(index, file, reader)
    index.flush()  # type: ignore[attr-defined]


def open_index(path: Path, *, writable: bool = False) -> "Index":
    """Map an index into memory."""
    import numpy as np

    return np.memmap(path, dtype=np.dtype(FIELDS), mode="r+" if writable else "r")


def place_of(file: RowFile, number: int) -> str:
    """What messages call a row."""
    return f"{file.label}: {file.noun} {number}"


def line_at(path: Path, entry: Any) -> Line:
    """Read the bytes of a row."""
    with path.open("rb") as data:
        data.seek(int(entry["offset"]))
        content = data.read(int(entry["length"]))
    return Line(int(entry["offset"]), int(entry["line"]), content)


def settled_id(item: Item, entry: Any) -> str:
    """The id of a row: one without ids that repeats an earlier one adds its line to it."""
    is_first = int(entry["id"]) == stable_hash(item.id)
    return item.id if is_first else f"{item.id}-{entry['line']}"


def _settle_ids(index: "Index", file: RowFile, reader: Reader) -> None:
    """Refuse two rows with one id; where the content is the id, tell repeated rows apart."""
    import numpy as np

    order = np.argsort(index["id"], kind="stable")
    ids = index["id"][order]
    for later in np.sort(order[1:][ids[1:] == ids[:-1]]):
        item = _item_at(index[later], file, reader)
        if reader.config.id is None:
            index["id"][later] = stable_hash(f"{item.id}-{index[later]['line']}")
            continue
        for earlier in np.flatnonzero(index["id"][:later] == index["id"][later]):
            if _item_at(index[earlier], file, reader).id == item.id:
                raise TaskError(
                    f"{place_of(file, index[later]['line'])}, column {shown(reader.config.id)}: "
                    f"the id {shown(item.id)} stands in {file.noun} {index[earlier]['line']} "
                    "already; an id names one row, so give each its own"
                )


def _item_at(entry: Any, file: RowFile, reader: Reader) -> Item:
    line = line_at(file.path, entry)
    return reader.item(file.parse(line), place_of(file, line.number))


def _check_kinds(
    item: Item, columns: tuple[str, ...], place: str, kinds: dict[str, tuple[str, str]]
) -> None:
    """Hold each answer column to one kind of value."""
    several = len(columns) > 1
    for column in columns:
        kind = _kind(item.reference[column] if several else item.reference)
        first, where = kinds.setdefault(column, (kind, place))
        if kind != first:
            raise TaskError(
                f"{place}, column {shown(column)}: is {kind}, but {where} has {first} there; one "
                "verifier reads them all, so give them one type"
            )


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a table"
    return "text or a number"


def _check_reference(item: Item, reader: Reader, place: str, verifier: Verifier) -> None:
    """Show a reference to the verifier, with an empty completion: it must not fail."""
    problem = item.problem(item.id)
    if isinstance(verifier, TrlReward):
        verifier = verifier.fitted(problem, reader.column)
    verdict = verify(verifier, "", reference_for(verifier, problem))
    if verdict.status is Status.FAILED:
        columns = ", ".join(map(shown, reader.answers))
        raise TaskError(
            f"{place}, column {columns}: data.verifier cannot use this reference: {verdict.detail}"
        )
