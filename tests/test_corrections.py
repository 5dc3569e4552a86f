"""Weights for completions that another policy sampled."""

from functools import partial
from math import exp, inf, nan
from typing import Any

import pytest
import torch
from builders import make_algorithm
from golden import CORRECTIONS, assert_close, cases, tensor
from torch import Tensor

from verigrad.algorithms.build import CORRECTIONS as NAMED
from verigrad.config.algorithm import CORRECTIONS as NAMES
from verigrad.core import corrections

MASK = torch.tensor([[True, True, True], [True, True, False]])
OLD = tensor([[-1.0, -2.0, -0.5], [-0.3, -1.0, 0.0]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize(("inputs", "expected"), cases("is_weights"))
def test_golden_weights(
    inputs: dict[str, Any], expected: dict[str, Any], dtype: torch.dtype
) -> None:
    mask = torch.tensor(inputs["mask"]).bool()
    old, sampled = (tensor(inputs[key], dtype) for key in ("prox_logprobs", "rollout_logprobs"))
    weights = CORRECTIONS[inputs["kind"]](old, sampled, mask, **inputs["params"])
    assert_close(weights, expected["weights"])
    kept = torch.tensor(expected["keep"]).bool() & mask
    assert torch.equal(weights != 0, kept)


@pytest.mark.parametrize("name", NAMES)
def test_a_sampler_that_is_the_trainer_has_weights_of_exactly_one(name: str) -> None:
    algorithm = make_algorithm(correction=name)
    assert algorithm.correction is not None
    assert algorithm.correction(OLD, OLD.clone(), MASK).tolist() == [[1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("garbage", [nan, inf, -inf])
def test_whatever_stands_behind_the_mask_changes_nothing(name: str, garbage: float) -> None:
    sampled = OLD + tensor([[0.1, -0.2, 0.0], [0.001, -0.001, 0.0]])
    dirty, other = sampled.clone(), OLD.clone()
    dirty[1, 2], other[1, 2] = garbage, -garbage
    assert torch.equal(NAMED[name](other, dirty, MASK), NAMED[name](OLD, sampled, MASK))


def ratios(*values: float) -> tuple[Tensor, Tensor, Tensor]:
    """Old and sampling log-probs of one row with these ratios."""
    old = tensor([list(values)]).log()
    return old, torch.zeros_like(old), torch.ones(1, len(values), dtype=torch.bool)


def test_product_and_geometric_mean_of_a_row_are_told_apart() -> None:
    """Both go by "sequence level"; a ratio of 2 on each of three tokens is 8 or 2."""
    row = ratios(2.0, 2.0, 2.0)
    product = corrections.sequence_masked(*row, low=7.9, high=8.1)
    assert product.tolist() == [pytest.approx([8.0] * 3)]
    assert not corrections.sequence_masked(*row, low=1.9, high=2.1).any()
    mean = corrections.geometric_masked(*row, low=1.9, high=2.1, cap=5.0)
    assert mean.tolist() == [pytest.approx([2.0] * 3)]
    assert not corrections.geometric_masked(*row, low=7.9, high=8.1, cap=5.0).any()


def test_a_token_is_masked_or_cut_and_its_row_stays() -> None:
    row = ratios(0.25, 1.0, 4.0)
    assert corrections.token_masked(*row).tolist() == [pytest.approx([0, 1, 0])]
    assert corrections.token_truncated(*row).tolist() == [pytest.approx([0.25, 1, 2])]
    assert corrections.sequence_truncated(*row).tolist() == [pytest.approx([1, 1, 1])]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"correction": "token_truncated", "correction_cap": 3.0}, [0.25, 1.0, 3.0]),
        (
            {"correction": "token_masked", "correction_low": 0.1, "correction_high": 3.0},
            [0.25, 1.0, 0.0],
        ),
        ({"correction": "token_masked"}, [0.0, 1.0, 0.0]),
    ],
)
def test_a_configuration_gives_the_bounds(parts: dict[str, Any], expected: list[float]) -> None:
    algorithm = make_algorithm(**parts)
    assert algorithm.correction is not None
    assert algorithm.correction(*ratios(0.25, 1.0, 4.0)).tolist() == [pytest.approx(expected)]


def test_a_lost_row_that_the_policy_has_left_is_dropped_and_no_other() -> None:
    """The gap is 0.7 per token in the first three rows, one of which won and one is neutral."""
    new = tensor([[-1.7, -1.7], [-1.7, -1.7], [-1.7, -1.7], [-1.2, -1.2]])
    sampled = torch.full_like(new, -1.0)
    advantages = tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0], [-1.0, -1.0]])
    drop = partial(corrections.off_policy_mask, new, sampled, advantages, torch.ones(4, 2).bool())
    assert drop(delta=0.5).tolist() == [[0, 0], [1, 1], [1, 1], [1, 1]]
    assert drop(delta=0.8).tolist() == [[1, 1]] * 4


def test_a_very_large_difference_stays_finite() -> None:
    old, sampled, mask = tensor([[0.0]]), tensor([[-1e4]]), torch.tensor([[True]])
    weights = corrections.sequence_masked(old, sampled, mask, high=inf)
    assert weights.item() == pytest.approx(exp(20))


def test_product_and_geometric_mean_of_a_row_are_two_corrections() -> None:
    old = torch.full((1, 2), 0.1, dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)
    none = torch.zeros_like(old)
    bounds = {"low": exp(0.05), "high": exp(0.15)}
    product = corrections.sequence_truncated(old, none, mask)
    assert product.tolist() == [[pytest.approx(exp(0.2))] * 2]
    assert corrections.sequence_masked(old, none, mask, **bounds).tolist() == [[0, 0]]
    geometric = corrections.geometric_masked(old, none, mask, **bounds)
    assert geometric.tolist() == [[pytest.approx(exp(0.1))] * 2]


def test_the_mean_of_a_long_row_is_not_cut_where_its_sum_would_be() -> None:
    """Thirty tokens of ratio e: their product is beyond every bound, their mean is not."""
    row = ratios(*[exp(1)] * 30)
    assert not corrections.geometric_masked(*row, low=0.5, high=2.0).any()
    kept = corrections.geometric_masked(*row, low=2.7, high=2.8)
    assert kept.tolist() == [[2.0] * 30]
