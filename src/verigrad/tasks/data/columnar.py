"""Rows of Parquet files, of folders that Hugging Face ``datasets`` saved, and of its hub.

They are written out once as JSON Lines, the needed columns only, and read from there: any row is
then at hand without the rest of its block, and without these packages.
"""

import datetime
import decimal
import importlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verigrad.config.checks import shown
from verigrad.errors import TaskError
from verigrad.tasks.data.rows import Row

ROWS_AT_ONCE = 1024


def write_rows(rows: Iterable[Row], path: Path, label: str) -> None:
    """Write rows as JSON Lines.

    Raises:
        TaskError: a value is none that JSON can hold; names the row and the column.
    """
    with path.open("w", encoding="utf-8") as out:
        for number, row in enumerate(rows, start=1):
            plain = {}
            for column, value in row.items():
                try:
                    plain[column] = _plain(value)
                except ValueError as error:
                    raise TaskError(
                        f"{label}: row {number}, column {shown(column)}: holds {error}; expected "
                        "text, numbers, lists or tables"
                    ) from None
            out.write(json.dumps(plain) + "\n")


def parquet_rows(path: Path, columns: Sequence[str], label: str) -> Iterator[Row]:
    """The rows of a Parquet file.

    Raises:
        TaskError: pyarrow is missing, the file is damaged, or has not all the columns.
    """
    parquet = _package("pyarrow.parquet", label)
    arrow = _package("pyarrow", label)
    try:
        with parquet.ParquetFile(path) as file:
            _check_columns(columns, file.schema_arrow.names, label)
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(columns)):
                yield from _rows(arrow, batch, label)
    except (OSError, arrow.ArrowException) as error:
        raise TaskError(f"{label}: is no Parquet file that can be read ({_line(error)})") from None


def saved_rows(folder: Path, split: str, columns: Sequence[str], label: str) -> Iterator[Row]:
    """The rows of a folder that ``Dataset.save_to_disk`` wrote.

    Args:
        folder: of a dataset, or of several splits.
        split: which of the splits.
        columns: the needed ones.
        label: what messages call it.

    Raises:
        TaskError: pyarrow is missing, or the folder holds no such dataset.
    """
    arrow = _package("pyarrow", label)
    try:
        for file in _files_of(folder, split, label):
            with arrow.memory_map(str(file)) as source, arrow.ipc.open_stream(source) as batches:
                _check_columns(columns, batches.schema.names, label)
                for batch in batches:
                    yield from _rows(arrow, batch.select(list(columns)), label)
    except (OSError, KeyError, TypeError, ValueError, arrow.ArrowException) as error:
        raise TaskError(
            f"{label}: is no folder that save_to_disk of Hugging Face datasets wrote "
            f"({_line(error)}); name a file, or save the dataset again"
        ) from None


def hub_rows(name: str, subset: str | None, split: str, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a dataset of the Hugging Face hub.

    Raises:
        TaskError: datasets is missing, or cannot load it.
    """
    datasets = _package("datasets", name)
    try:
        rows = datasets.load_dataset(name, subset, split=split, streaming=True)
        for row in rows:
            _check_columns(columns, list(row), name)
            yield {column: row[column] for column in columns}
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        part = f"the subset {shown(subset)}" if subset else "no data.subset"
        raise TaskError(
            f"{name}: Hugging Face datasets cannot load it with {part} and the split "
            f"{shown(split)} ({type(error).__name__}: {_line(error)})"
        ) from None


def _package(name: str, label: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise TaskError(
            f"{label}: needs the package {name.partition('.')[0]}, which is not installed; "
            'install it with: pip install "verigrad[data]"'
        ) from None


def _check_columns(wanted: Sequence[str], there: Sequence[str], label: str) -> None:
    for column in wanted:
        if there.count(column) > 1:
            raise TaskError(
                f"{label}: has the column {shown(column)} {there.count(column)} times, and only "
                "one can be meant; leave the others out, or give them other names"
            )
        if column not in there:
            raise TaskError(
                f"{label}: row 1, column {shown(column)}: is missing; the columns there are "
                f"{', '.join(map(shown, there))}; name the right one in [data]"
            )


def _files_of(folder: Path, split: str, label: str) -> list[Path]:
    """The Arrow files of a saved dataset, in order."""
    several = folder / "dataset_dict.json"
    if several.exists():
        splits = json.loads(several.read_text(encoding="utf-8"))["splits"]
        if split not in splits:
            raise TaskError(
                f"{label}: has the splits {', '.join(splits)}, and data.split is {shown(split)}"
            )
        folder = folder / split
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    return [folder / file["filename"] for file in state["_data_files"]]


def _rows(arrow: Any, batch: Any, label: str) -> Iterator[Row]:
    """The rows of a batch; a short float prints as it did before it was a longer one.

    Raises:
        TaskError: a text is not UTF-8, which writers of such files need not check.
    """
    try:
        rows = batch.to_pylist()
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{label}: holds a text that is not UTF-8 (byte 0x{error.object[error.start]:02x}); "
            "write the file again, with its texts as UTF-8"
        ) from None
    for row in rows:
        yield {
            field.name: _shortest(arrow.types, row[field.name], field.type)
            for field in batch.schema
        }


def _shortest(types: Any, value: Any, kind: Any) -> Any:
    """A value of an Arrow type, its short floats as the shortest numbers that mean them."""
    if value is None:
        return None
    if types.is_float16(kind) or types.is_float32(kind):
        import numpy as np

        return float(str((np.float16 if types.is_float16(kind) else np.float32)(value)))
    if types.is_struct(kind):
        return {part.name: _shortest(types, value[part.name], part.type) for part in kind}
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [_shortest(types, part, kind.value_type) for part in value]
    return value


def _plain(value: object) -> Any:
    """A value as JSON can hold it; NaN is how tables of numbers say null.

    Raises:
        ValueError: it cannot; says what it is.
    """
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        raise ValueError("an infinite number")
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"  # All its digits: its own text is 1E-8 for 0.00000001.
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    raise ValueError(f"a value of type {type(value).__name__}")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
