"""What the fields of the configuration may hold, and the check that every section makes."""

import re
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, get_type_hints

from verigrad.config.checks import Matching, Range, mismatch
from verigrad.errors import ConfigError

PositiveInt = Annotated[int, Range(low=1)]
Count = Annotated[int, Range(low=0)]
PositiveFloat = Annotated[float, Range(low=0, above=True)]
NonNegativeFloat = Annotated[float, Range(low=0)]
Fraction = Annotated[float, Range(low=0, high=1)]

MOST_THREADS = 16384
"""More CPU threads than machines have; a number beyond it is a slip, and torch ends with it."""

# As much beyond what machines have: their memory, timers and limits end with it.
Threads = Annotated[int, Range(low=1, high=MOST_THREADS)]
Workers = Annotated[int, Range(low=0, high=1024)]
Seconds = Annotated[float, Range(low=0, high=1e6, above=True)]
Megabytes = Annotated[int, Range(low=1, high=10**9)]

LineText = Annotated[
    str,
    Matching(
        r"[^\x00-\x1f\x7f\ud800-\udfff]+",
        "text in quotes, not empty and without control characters",
    ),
]
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SizeText = Annotated[
    str,
    Matching(
        rf"auto|(?=.*[1-9])\d+(\.\d+)? ?({'|'.join(UNITS)})",
        'a size such as "6 GB" or "512 MiB", or "auto"',
    ),
]
DeviceText = Annotated[
    str, Matching(r"auto|cpu|mps|cuda(:\d+)?", '"auto", "cpu", "cuda" or "cuda:1"')
]


def in_bytes(size: str) -> int:
    """The bytes of a size such as ``6 GB``, which :data:`SizeText` accepts."""
    number, unit = re.fullmatch(r"([\d.]+) ?([A-Za-z]+)", size).groups()  # type: ignore[union-attr]
    return int(float(number) * UNITS[unit])


class Section:
    """Checks every field of a configuration section against its type and range when it is made."""

    def __post_init__(self) -> None:
        """Raise ConfigError naming the field, what was found and what is accepted."""
        # As any type: mypy takes one of dataclasses for as little hashable as they are.
        kind: type = type(self)
        hints = _hints(kind)
        for spec in fields(self):  # type: ignore[arg-type]
            problem = mismatch(getattr(self, spec.name), hints[spec.name])
            if problem:
                raise ConfigError(f"{kind.__name__}.{spec.name} {problem}")


@cache
def _hints(section: type) -> dict[str, Any]:
    """The type hints of a section with their limits, evaluated once for all that are made."""
    return get_type_hints(section, include_extras=True)
