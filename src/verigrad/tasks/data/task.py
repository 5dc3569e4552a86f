"""A task whose problems are the rows of a file, read when they are needed."""

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from verigrad.cache import cache_folder, publish
from verigrad.config import VERIFIERS as BUILT_IN
from verigrad.config import DataConfig
from verigrad.errors import ConfigError, TaskError
from verigrad.hashing import Purpose, stable_hash
from verigrad.tasks.base import Split
from verigrad.tasks.data.columnar import hub_rows, parquet_rows, saved_rows, write_rows
from verigrad.tasks.data.columns import Reader
from verigrad.tasks.data.index import (
    CHECKED,
    ENTRY,
    line_at,
    open_index,
    place_of,
    settled_id,
    write_index,
)
from verigrad.tasks.data.lines import BOM
from verigrad.tasks.data.rows import JsonArray, JsonLines, Row, RowFile, Table
from verigrad.types import Message, Problem
from verigrad.verifiers import TrlReward, Verifier
from verigrad.verifiers.adapter import reference_for
from verigrad.verifiers.named import verifier_named
from verigrad.verifiers.solutions import solution_of

if TYPE_CHECKING:
    import numpy as np

FORMAT = 2
"""Of the cache; a change of what is kept there makes it again."""

COPIED = "rows.jsonl"
"""The file of the rows, in the cache, of what is no text."""


@dataclass(frozen=True)
class DataTask:
    """The rows of a file as problems; only the index of the file is in memory."""

    name: str
    verifier: Verifier
    file: RowFile
    reader: Reader
    index: "np.ndarray[Any, Any]"
    """One entry per row of the file; the first ones may be examples."""

    before: tuple[Message, ...]
    """What stands before every prompt: a system prompt, solved examples."""

    def __len__(self) -> int:
        """How many problems there are."""
        return len(self.index) - self.reader.config.shots

    def __getitem__(self, index: int, /) -> Problem:
        """The problem at an index, read from its file.

        Raises:
            TaskError: the file has changed since it was indexed.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"task {self.name!r} has {len(self)} problems, none at {index}")
        entry = self.index[self.reader.config.shots + index % len(self)]
        line = line_at(self.file.path, entry)
        place = place_of(self.file, line.number)
        item = self.reader.item(self.file.parse(line), place)
        if stable_hash(Purpose.HELD_OUT, item.content) != int(entry["content"]):
            raise TaskError(
                f"{place} has changed since this run read the file; leave a file alone while it is "
                "in use, and start again"
            )
        problem = item.problem(settled_id(item, entry), self.before)
        return replace(problem, reference=reference_for(self.verifier, problem))

    def checked_by(self, verifier: Verifier) -> "DataTask":
        """The same rows with a verifier, which is told of their columns where it asks for them."""
        if isinstance(verifier, TrlReward):
            verifier = verifier.fitted(self[0], self.reader.column)
        return replace(self, verifier=verifier)

    def solution(self, problem: Problem) -> str | None:
        """The reference as its verifier writes it; a column called "answer" is only a column."""
        return solution_of(self.verifier, problem.reference)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the data."""
        import numpy as np

        contents = self.index["content"]
        repeated = len(contents) - len(np.unique(contents))
        notes = [
            f"{self.file.label}: {len(self)} problems, every row checked, and the reference "
            f"of the first {min(CHECKED, len(contents))} shown to the verifier"
        ]
        if repeated:
            notes.append(
                f"{self.file.label}: {repeated} rows repeat the prompt of another; equal prompts "
                "stay on one side of the held-out split"
            )
        return tuple(notes)

    def split(self, share: float) -> Split:
        """Hold problems out by the hash of their content, without reading a row.

        Args:
            share: of the problems, in [0, 1).
        """
        import numpy as np

        contents = self.index["content"][self.reader.config.shots :]
        held = contents < np.uint64(math.ceil(share * 2.0**64))
        return Split(
            training=Rows(self, np.flatnonzero(~held)), held_out=Rows(self, np.flatnonzero(held))
        )


@dataclass(frozen=True)
class Rows(Sequence[Problem]):
    """Some of a task's problems, each read when it is asked for."""

    task: DataTask
    indices: "np.ndarray[Any, Any]"

    def __len__(self) -> int:
        """How many there are."""
        return len(self.indices)

    @overload
    def __getitem__(self, index: int, /) -> Problem: ...
    @overload
    def __getitem__(self, index: slice, /) -> "Rows": ...
    def __getitem__(self, index: int | slice, /) -> "Problem | Rows":
        """One problem, or some of them."""
        if isinstance(index, slice):
            return Rows(self.task, self.indices[index])
        return self.task[int(self.indices[index])]


def data_task(name: str, config: DataConfig) -> DataTask:
    """Make the task that a file, a saved dataset or a hub dataset holds.

    Args:
        name: an absolute path, or a hub id.
        config: how its rows become problems.

    Raises:
        TaskError: a row cannot be used, or the data cannot be read at all.
        ConfigError: the section [data] does not say how.
    """
    if config.verifier is None:
        raise ConfigError(
            f"data.verifier is missing, and the task is data; name what checks the completions: "
            f"{', '.join(BUILT_IN)}, or file.py:name"
        )
    verifier = verifier_named(config.verifier)
    reader = Reader(config)
    path = Path(name)
    key = json.dumps([FORMAT, name, asdict(config), _stamps(path)])
    # Of a long name the beginning will do: it is there for a person, and names have 255 bytes.
    entry = cache_folder() / "data" / f"{path.stem[:40]}-{stable_hash(key):016x}"
    if not _is_made(entry, copies=not path.is_file() or path.suffix.lower() == ".parquet"):
        shutil.rmtree(entry, ignore_errors=True)
        publish(lambda folder: _prepare(folder, path, name, reader, verifier), entry)
    file = _open(entry, path, name)
    task = DataTask(path.stem, verifier, file, reader, open_index(entry / "index"), ())
    return replace(task, before=_before(task)).checked_by(verifier)


def _is_made(entry: Path, *, copies: bool) -> bool:
    """Whether all is there: what cleans caches of old files may have left the folder and no more.

    Args:
        entry: the folder of the index.
        copies: whether the rows are kept beside the index.
    """
    index = entry / "index"
    size = index.stat().st_size if index.is_file() else 0
    return size > 0 and size % ENTRY.size == 0 and (not copies or (entry / COPIED).is_file())


def _prepare(folder: Path, path: Path, name: str, reader: Reader, verifier: Verifier) -> None:
    """Write the index, and before it the rows where they are not text."""
    folder.mkdir()
    rows = _rows(path, name, reader)
    if rows is not None:
        write_rows(rows, folder / COPIED, _label(path, name))
    write_index(folder / "index", _open(folder, path, name), reader, verifier)


def _rows(path: Path, name: str, reader: Reader) -> Iterator[Row] | None:
    """The rows of what is no text; None for text."""
    label, columns, config = _label(path, name), reader.columns, reader.config
    if path.is_dir():
        return saved_rows(path, config.split, columns, label)
    if path.suffix.lower() == ".parquet":
        return parquet_rows(path, columns, label)
    return None if path.is_file() else hub_rows(name, config.subset, config.split, columns)


def _open(entry: Path, path: Path, name: str) -> RowFile:
    """The file that the index is of."""
    label, copied = _label(path, name), entry / COPIED
    if copied.exists():
        return JsonLines(copied, label, noun="row")
    if path.suffix.lower() in (".csv", ".tsv"):
        return Table(path, label, delimiter="," if path.suffix.lower() == ".csv" else "\t")
    is_array = path.suffix.lower() == ".json" and _first_sign(path) == b"["
    return (JsonArray if is_array else JsonLines)(path, label)


def _first_sign(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1 << 16).removeprefix(BOM).lstrip()[:1]


def _label(path: Path, name: str) -> str:
    return path.name if path.is_absolute() else name


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    """What changes when the data does; a hub dataset is loaded once."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path] if path.is_file() else []
    stats = [(file.name, file.stat()) for file in files]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def _before(task: DataTask) -> tuple[Message, ...]:
    """A system prompt, and the first rows as solved examples."""
    config, before = task.reader.config, []
    if config.system is not None:
        before.append(Message(role="system", content=config.system))
    for entry in task.index[: config.shots]:
        line = line_at(task.file.path, entry)
        row = task.file.parse(line)
        before += task.reader.solved(row, place_of(task.file, line.number))
    return tuple(before)
