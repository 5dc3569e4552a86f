"""Tasks from Parquet files, folders that datasets saved, and the hub."""

import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from verigrad.config import config_from
from verigrad.errors import VerigradError
from verigrad.tasks import Task, load_task


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own, with the cache beside it."""
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    return tmp_path / "data"


def load(name: str, **data: Any) -> Task:
    keys = {"task": name, "model": "tabular", "data": {"verifier": "exact"} | data}
    config = config_from(keys, source="run.toml", base=Path.cwd())
    return load_task(config.task, config.data)


def rows(task: Task) -> list[tuple[Any, Any]]:
    return [(task[index].prompt, task[index].reference) for index in range(len(task))]


def refusal(name: str, **data: Any) -> str:
    with pytest.raises(VerigradError) as caught:
        load(name, **data)
    text = str(caught.value)
    assert "\n" not in text
    return text


def columns() -> dict[str, Any]:
    arrow = pytest.importorskip("pyarrow")
    return {
        "prompt": ["a", "b", "c"],
        "answer": arrow.array([9007199254740993, 2, None], arrow.int64()),
        "short": arrow.array([0.1, 1.5, float("nan")], arrow.float32()),
        "image": [b"1", b"2", b"3"],
        "several": [["x", "y"], ["z"], ["w"]],
    }


def write_saved(folder: Path, answers: list[str]) -> None:
    """What save_to_disk writes: the rows as a stream of Arrow batches, and the name of its file."""
    arrow = pytest.importorskip("pyarrow")
    folder.mkdir(parents=True)
    table = arrow.table({"prompt": [f"q{a}" for a in answers], "answer": answers})
    path = str(folder / "data-00000-of-00001.arrow")
    with arrow.OSFile(path, "wb") as file, arrow.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=2)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))


def test_the_rows_of_parquet_keep_their_digits() -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.table(columns()).slice(0, 2)
    parquet.write_table(table, "t.parquet", row_group_size=1)
    assert rows(load("t.parquet")) == [("a", 9007199254740993), ("b", 2)]
    assert rows(load("t.parquet", answer="short")) == [("a", 0.1), ("b", 1.5)]
    assert rows(load("t.parquet", answer="several")) == [("a", ["x", "y"]), ("b", ["z"])]


def test_rows_that_are_no_longer_in_the_cache_are_read_again(here: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"prompt": ["q"], "answer": ["a"]}), "t.parquet")
    load("t.parquet")
    (copy,) = (here.parent / "cache").rglob("rows.jsonl")
    copy.unlink()
    assert rows(load("t.parquet")) == [("q", "a")]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("answer", 't.parquet: row 3, column "answer": is null; fill it in'),
        ("short", 't.parquet: row 3, column "short": is null; fill it in'),
        ("image", 't.parquet: row 1, column "image": holds a value of type bytes; expected text'),
        ("answers", 't.parquet: row 1, column "answers": is missing; the columns there are "prom'),
    ],
)
def test_a_bad_row_of_parquet_is_refused_with_row_and_column(answer: str, message: str) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns()), "t.parquet")
    assert refusal("t.parquet", answer=answer).startswith(message)


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (lambda arrow: arrow.float16(), 0.1, 0.1),
        (lambda arrow: arrow.float32(), 3.3, 3.3),
        (lambda arrow: arrow.list_(arrow.float32()), [0.1, None], [0.1, None]),
        (lambda arrow: arrow.struct({"low": arrow.float16()}), {"low": 0.1}, {"low": 0.1}),
        (lambda arrow: arrow.decimal128(20, 8), Decimal("0.00000001"), "0.00000001"),
    ],
)
def test_a_number_of_parquet_is_read_as_it_is_written_in_full(
    kind: Callable[[ModuleType], Any], value: Any, read: Any
) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {"prompt": ["q"], "answer": arrow.array([value], kind(arrow))}
    parquet.write_table(arrow.table(table), "t.parquet")
    assert rows(load("t.parquet", verifier="json")) == [("q", read)]


def test_a_column_of_parquet_that_stands_there_twice_is_refused() -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = arrow.Table.from_arrays(
        [arrow.array([text]) for text in "qab"], names=["prompt", "answer", "answer"]
    )
    parquet.write_table(table, "t.parquet")
    assert refusal("t.parquet").startswith('t.parquet: has the column "answer" 2 times')


def test_a_text_of_parquet_that_is_not_utf8_is_refused() -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    ends, text = arrow.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), arrow.py_buffer(b"\xff")
    answers = arrow.StringArray.from_buffers(1, ends, text)
    parquet.write_table(arrow.table({"prompt": ["q"], "answer": answers}), "t.parquet")
    assert refusal("t.parquet").startswith("t.parquet: holds a text that is not UTF-8 (byte 0xff)")


def test_what_is_no_parquet_is_refused() -> None:
    pytest.importorskip("pyarrow")
    Path("t.parquet").write_bytes(b"PAR1 and nothing else")
    assert refusal("t.parquet").startswith("t.parquet: is no Parquet file that can be read (")


def test_a_saved_dataset_is_read_with_the_split_that_is_asked_for() -> None:
    write_saved(Path("one"), ["1", "2", "3"])
    for name, answers in {"train": ["4"], "test": ["5", "6"]}.items():
        write_saved(Path("several") / name, answers)
    Path("several/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert rows(load("one")) == [("q1", "1"), ("q2", "2"), ("q3", "3")]
    assert rows(load("several")) == [("q4", "4")]
    assert rows(load("several", split="test")) == [("q5", "5"), ("q6", "6")]
    assert refusal("several", split="validation") == (
        'several: has the splits train, test, and data.split is "validation"'
    )


def test_a_folder_that_holds_no_dataset_is_refused() -> None:
    pytest.importorskip("pyarrow")
    Path("empty").mkdir()
    assert refusal("empty").startswith("empty: is no folder that save_to_disk of Hugging Face")


@pytest.mark.parametrize(
    ("name", "package"),
    [("t.parquet", "pyarrow"), ("folder", "pyarrow"), ("someone/something", "datasets")],
)
def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    Path("t.parquet").touch()
    Path("folder").mkdir()
    assert refusal(name) == (
        f"{name}: needs the package {package}, which is not installed; install it with: "
        'pip install "verigrad[data]"'
    )


def test_a_dataset_of_the_hub_is_read_once_through_the_package_datasets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hub is out of reach of a test, so a module of one function stands for the package."""
    calls = []

    def load_dataset(*names: Any, **options: Any) -> Any:
        calls.append((names, options))
        return iter([{"prompt": "q", "answer": "a", "image": object()}])

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    assert rows(load("someone/something", subset="main", split="test")) == [("q", "a")]
    assert rows(load("someone/something", subset="main", split="test")) == [("q", "a")]
    assert calls == [(("someone/something", "main"), {"split": "test", "streaming": True})]
    assert refusal("someone/something", answer="solution").startswith(
        'someone/something: row 1, column "solution": is missing; the columns there are "prompt", '
    )
