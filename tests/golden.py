"""The golden vectors: what the formulas give, computed in float64 by a separate plain program.

``data/golden.json`` holds one case per line; every case of a kind runs. It shares no code with the
library, so a mistake would have to be made twice, in the same way, to go unseen.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
"""Largest error, relative to max(1, |expected|)."""

_CASES = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())["cases"]


def cases(*kinds: str) -> list[Any]:
    """The cases of some kinds, as the parameters of a test: ``(inputs, expected)``."""
    found = [
        pytest.param(case["inputs"], case["expected"], id=case["id"])
        for case in _CASES
        if case["kind"] in kinds
    ]
    assert {case["kind"] for case in _CASES} >= set(kinds), "a kind has no case"
    return found


def tensor(values: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    """Nested lists as a tensor; the texts NaN, Infinity and -Infinity are the numbers they name."""
    return torch.tensor(_numbers(values), dtype=dtype)


def assert_close(actual: Tensor, expected: Any) -> None:
    """Hold a result to a golden one, at the tolerance of the result's dtype."""
    wanted = tensor(expected)
    assert actual.shape == wanted.shape
    error = (actual.double() - wanted).abs() / wanted.abs().clamp(min=1)
    assert error.max() <= TOLERANCE[actual.dtype], f"got {actual}, expected {wanted}"


def _numbers(values: Any) -> Any:
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    return float(values)
