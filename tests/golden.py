"""The golden vectors: what the formulas give, computed in float64 by a separate plain program.

``data/golden.json`` holds one case per line; every case of a kind runs. It shares no code with the
library, so a mistake would have to be made twice, in the same way, to go unseen.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from verigrad.batch import Tokens
from verigrad.core import corrections
from verigrad.policies.base import TokenScores
from verigrad.types import Prompt

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
"""Largest error, relative to max(1, |expected|)."""

CORRECTIONS = {
    "token_tis": corrections.token_truncated,
    "token_mask": corrections.token_masked,
    "seq_tis": corrections.sequence_truncated,
    "seq_mask": corrections.sequence_masked,
    "geo_mask_token_tis": corrections.geometric_masked,
}
"""By the names in the file."""

_CASES = json.loads((Path(__file__).parent / "data" / "golden.json").read_text())["cases"]


IDS = tuple(case["id"] for case in _CASES)
"""Every case."""


def ids_of(*names: str) -> list[str]:
    """The ids of the cases that kinds or ids name."""
    found = [case["id"] for case in _CASES if {case["kind"], case["id"]} & set(names)]
    known = {case[key] for case in _CASES for key in ("kind", "id")}
    assert known >= set(names), f"no case goes by {set(names) - known}"
    return found


def cases(*names: str) -> list[Any]:
    """The cases of some kinds or ids, as the parameters of a test: ``(inputs, expected)``."""
    chosen = ids_of(*names)
    return [
        pytest.param(case["inputs"], case["expected"], id=case["id"])
        for case in _CASES
        if case["id"] in chosen
    ]


def tensor(values: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    """Nested lists as a tensor; the texts NaN, Infinity and -Infinity are the numbers they name."""
    return torch.tensor(_numbers(values), dtype=dtype)


def assert_close(actual: Tensor, expected: Any) -> None:
    """Hold a result to a golden one, at the tolerance of the result's dtype."""
    wanted = tensor(expected)
    assert actual.shape == wanted.shape
    error = (actual.double() - wanted).abs() / wanted.abs().clamp(min=1)
    assert error.max() <= TOLERANCE[actual.dtype], f"got {actual}, expected {wanted}"


class Fixed:
    """A policy whose log-probs are given numbers, so that a gradient is with respect to them."""

    module = nn.Module()
    stop_token_ids: tuple[int, ...] = ()
    max_positions: int | None = None

    def __init__(self, log_probs: Tensor) -> None:
        self.log_probs = log_probs.requires_grad_()

    def score(self, tokens: Tokens, temperature: float, **options: Any) -> TokenScores:
        return TokenScores(log_probs=self.log_probs, entropy=torch.zeros(tokens.mask.shape))

    def share(self, prompt: Prompt) -> None:
        return None


def _numbers(values: Any) -> Any:
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    return float(values)
