"""The section that says how the rows of a file become problems."""

from dataclasses import dataclass
from typing import Annotated

from verigrad.config.checks import Matching
from verigrad.config.fields import Count, LineText, Section

VERIFIERS = ("exact", "number", "math", "choice", "format", "json", "regex", "code")
"""The built-in verifiers; anything else is ``file.py:name``."""

DATA_SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
"""How the names of files end that hold a task's rows."""

Text = Annotated[
    str,
    Matching(
        r"(?=[\s\S]*\S)[^\x00\ud800-\udfff]+", "text in quotes, with more in it than white space"
    ),
]
Columns = tuple[LineText, ...]


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """How rows become problems, where the task is a file, a saved dataset or one of the hub."""

    prompt: Text = "prompt"
    """The column that holds the prompt, as text or as chat messages; or a template over columns,
    such as "{question} Answer:", where {{ and }} are braces."""

    answer: LineText | Columns = "answer"
    """The column that holds the reference; of several columns, it is a table by their names."""

    answer_after: Text | None = None
    """The reference is what follows the last of this in the answer column: "####", for one."""

    id: LineText | None = None
    """The column that names each row, no two alike; without it the content does."""

    verifier: LineText | None = None
    """What checks completions: exact, number, math, choice, format, json, regex, code, or
    ``file.py:name`` for one of your own. Needed where the task is data."""

    system: Text | None = None
    """A system prompt that stands before every prompt."""

    shots: Count = 0
    """So many rows, the first ones, are shown as solved examples before every prompt; they are no
    problems of the task."""

    shot_answer: Text | None = None
    """What the examples are answered with, a column or a template; without it the answer."""

    json_columns: Columns = ()
    """Columns that hold lists or tables; where they hold text, as in CSV, it is read as JSON."""

    subset: LineText | None = None
    """Which configuration of a hub dataset."""

    split: LineText = "train"
    """Which split of a hub dataset, or of a saved one that has several."""
