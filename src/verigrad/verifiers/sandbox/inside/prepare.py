"""Makes an interpreter ready for programs, before it sees the first one."""

import importlib
import sys

PRELOADED = (
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "fractions", "functools",
    "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string",
    "typing",
)  # fmt: skip
"""What programs commonly import."""


def prepare() -> None:
    """Load what programs commonly import, and let integers of any length be written as text."""
    for name in PRELOADED:
        importlib.import_module(name)
    sys.set_int_max_str_digits(0)
