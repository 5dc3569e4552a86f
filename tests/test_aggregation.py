"""Which weight each token has."""

from typing import Any

import pytest
import torch
from builders import make_algorithm
from golden import assert_close, cases, tensor
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from verigrad.config.algorithm import AGGREGATIONS
from verigrad.core import aggregation

LONGEST = 6

LENGTHS = [3, 1, 0, 2]
"""Two groups of two rows; one row is empty."""

WEIGHTS = {
    "token_mean": [1 / 6, 1 / 6, 0, 1 / 6],
    "seq_mean_token_mean": [1 / 9, 1 / 3, 0, 1 / 6],
    "seq_mean_token_mean_all": [1 / 12, 1 / 4, 0, 1 / 8],
    "seq_mean_token_sum": [1 / 3, 1 / 3, 0, 1 / 3],
    "const_norm": [1 / 24, 1 / 24, 0, 1 / 24],
    "group_token_mean": [1 / 8, 1 / 8, 0, 1 / 4],
}
"""The weight of each token of each of those rows, worked out by hand; LONGEST is the constant."""


def mask_of(lengths: list[int], width: int = LONGEST) -> Tensor:
    return torch.arange(width) < torch.tensor(lengths).unsqueeze(1)


def weigh(name: str, mask: Tensor, group_index: list[int]) -> Tensor:
    """The weights of a rule under the name that a configuration gives it."""
    algorithm = make_algorithm(aggregation=name, max_new_tokens=LONGEST)
    return algorithm.aggregation(mask, torch.tensor(group_index))


def golden_weights(inputs: dict[str, Any]) -> Tensor:
    mask = torch.tensor(inputs["mask"]).bool()
    params = inputs.get("params", {})
    options = {"length": params["L"]} if params else {}
    group_index = torch.tensor(inputs.get("group_ids", [0] * len(mask)))
    weights: Tensor = getattr(aggregation, inputs["mode"])(mask, group_index, **options)
    return weights


@pytest.mark.parametrize(("inputs", "expected"), cases("aggregation"))
def test_golden_weights(inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    weights = golden_weights(inputs)
    assert_close(weights, expected["weights"])
    assert_close((weights * tensor(inputs["per_token_loss"])).sum(), expected["loss"])


@pytest.mark.parametrize(("inputs", "expected"), cases("aggregation_micro"))
def test_golden_passes_add_up_to_the_whole(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    weighted = golden_weights(inputs) * tensor(inputs["per_token_loss"])
    parts = torch.stack([weighted[rows].sum() for rows in inputs["parts"]])
    assert_close(parts, expected["contributions"])
    assert_close(parts.sum(), expected["loss"])


@pytest.mark.parametrize(("inputs", "expected"), cases("aggregation_ddp"))
def test_golden_ranks_that_are_averaged_are_scaled_by_their_number(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    weighted = golden_weights(inputs) * tensor(inputs["per_token_loss"])
    ranks = torch.stack([weighted[rows].sum() for rows in inputs["ranks"]]) * inputs["world_size"]
    assert_close(ranks, expected["rank_losses"])
    assert_close(ranks.mean(), expected["loss"])


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_each_rule_on_four_rows_worked_out_by_hand(name: str) -> None:
    mask = mask_of(LENGTHS)
    expected = mask * torch.tensor(WEIGHTS[name], dtype=torch.float64).unsqueeze(1)
    actual = weigh(name, mask, [0, 0, 1, 1])
    assert actual.dtype == torch.float64
    assert torch.allclose(actual, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_nothing_weighs_when_nothing_trains(name: str) -> None:
    assert weigh(name, mask_of([0, 0, 0]), [0, 0, 1]).tolist() == [[0.0] * LONGEST] * 3


@pytest.mark.parametrize("name", AGGREGATIONS)
@given(st.lists(st.integers(0, LONGEST), min_size=1, max_size=5), st.integers(0, 4), st.data())
def test_a_row_keeps_its_weights_in_any_order_and_any_width(
    name: str, lengths: list[int], padding: int, data: st.DataObject
) -> None:
    groups = data.draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths)))
    order = data.draw(st.permutations(range(len(lengths))))
    expected = weigh(name, mask_of(lengths), groups)[order]
    mask = mask_of([lengths[row] for row in order], LONGEST + padding)
    actual = weigh(name, mask, [groups[row] for row in order])
    assert torch.equal(actual[:, :LONGEST], expected)
    assert not actual[:, LONGEST:].any()


@pytest.mark.parametrize("name", AGGREGATIONS)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4))
def test_only_the_mask_weighs(name: str, rows: list[list[bool]]) -> None:
    mask = torch.tensor(rows)
    assert torch.equal(weigh(name, mask, [0] * len(rows)) > 0, mask)
