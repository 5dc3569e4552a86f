"""Cases of data: files are written, loaded as a task, and compared row by row."""

import base64
import tempfile
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from verigrad.config import config_from
from verigrad.errors import VerigradError
from verigrad.tasks import load_task, problem_at, split
from verigrad.types import Problem, Status
from verigrad.verifiers import verify

KEYS = {"prompt_column": "prompt", "target_column": "answer", "id_column": "id"}
"""The keys that a case's names of columns are here."""

Result = tuple[float | str, str]
"""A reward or "error", and words."""


def run_data_case(case: dict[str, Any]) -> Result:
    """1 when the rows are those expected; "error" when they are refused as expected."""
    given, expected = case["input"], case["expected"]
    with tempfile.TemporaryDirectory() as folder:
        for name, content in given["files"].items():
            is_text = isinstance(content, str)
            data = content.encode() if is_text else base64.b64decode(content["base64"])
            (Path(folder) / name).write_bytes(data)
        try:
            problems = problems_of(Path(folder), sorted(given["files"]), given["config"])
        except VerigradError as error:
            missing = [w for w in expected.get("error_must_mention", ()) if w not in str(error)]
            refused = f"does not mention {missing}: " if missing else ""
            return "error without a cause" if missing else "error", f"{refused}{error}"
    wrong = difference(problems, expected.get("rows"))
    return (0.0, wrong) if wrong else (1.0, "the rows are those expected")


def problems_of(folder: Path, names: list[str], config: dict[str, Any]) -> list[Problem]:
    """Load the files of a case, in the order in which a run would draw their problems."""
    others = config.keys() - KEYS.keys() - {"shuffle", "seed"}
    data: dict[str, Any] = {KEYS[key]: column for key, column in config.items() if key in KEYS}
    # A column of tests, choices and the like holds lists or tables.
    data["json_columns"] = sorted(config[key] for key in others if key.endswith("_column"))
    problems: list[Problem] = []
    for name in names:
        sections = {"task": name, "model": "tabular", "data": {"verifier": "exact"} | data}
        made = config_from(sections, source="case", base=folder)
        task = load_task(made.task, made.data)
        parts = split(task, 0.0).training
        order = "shuffled" if config.get("shuffle") else "file"
        seed = config.get("seed", 0)
        problems += [problem_at(parts, seed, place, order) for place in range(len(parts))]
        for problem in problems:
            verdict = verify(task.verifier, text_of(problem.reference), problem.reference)
            assert verdict.status is not Status.FAILED, verdict.detail
    return problems


def difference(problems: list[Problem], rows: list[dict[str, Any]] | str | None) -> str:
    """What differs from the expected rows; rows in words only say how many there are."""
    if rows is None:
        swapped = [p for p in problems if str(p.prompt)[1:] != text_of(p.reference)[1:]]
        return f"{swapped[0].prompt} has the answer {swapped[0].reference}" if swapped else ""
    if isinstance(rows, str):
        count, said = int(rows.split()[0]), rows.rpartition("last hint == ")[2].strip("'")
        last = text_of(problems[-1].metadata.get("hint"))
        return "" if (len(problems), last) == (count, said) else f"{len(problems)} rows, {last}"
    if len(problems) != len(rows):
        return f"{len(problems)} rows instead of {len(rows)}"
    for problem, row in zip(problems, rows, strict=True):
        found = {"prompt": problem.prompt, "answer": problem.reference, "id": problem.id}
        found |= problem.metadata
        for column, value in row.items():
            if not same(found.get(column), value):
                return f"{column} is {found.get(column)!r} instead of {value!r}"
    return ""


def same(found: Any, expected: Any) -> bool:
    """Equal, or a number and its digits in text."""
    if found == expected or text_of(found) == text_of(expected):
        return True
    try:
        return Decimal(text_of(found)) == Decimal(text_of(expected))
    except InvalidOperation:
        return False


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
