"""What is done to rewards and masks before the loss: length, entropy."""

from typing import Any

import pytest
import torch
from builders import make_algorithm
from golden import assert_close, cases, tensor
from hypothesis import given
from hypothesis import strategies as st

from verigrad.core.shaping import soft_overlong, top_entropy


@pytest.mark.parametrize(("inputs", "expected"), cases("overlong"))
def test_golden_punishment_of_length(inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    lengths = torch.tensor(inputs["lengths"])
    actual = soft_overlong(lengths, longest=inputs["L_max"], cache=inputs["L_cache"])
    assert_close(actual, expected["penalty"])


def test_a_configuration_punishes_the_last_share_of_its_longest_completion() -> None:
    algorithm = make_algorithm(overlong_share=0.2, max_new_tokens=100)
    assert algorithm.punish_length is not None
    assert algorithm.punish_length(torch.tensor([80, 90, 100])).tolist() == [0, -0.5, -1]


@pytest.mark.parametrize(("inputs", "expected"), cases("entropy_mask"))
def test_golden_tokens_of_high_entropy(inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    entropy, mask = tensor(inputs["entropy"]), torch.tensor(inputs["mask"]).bool()
    kept = top_entropy(entropy, mask, fraction=inputs["top_fraction"])
    assert kept.int().tolist() == expected["keep"]
    assert torch.quantile(entropy[mask], 0.8).item() == pytest.approx(expected["threshold"])


@given(
    st.lists(st.floats(0, 5), min_size=1, max_size=12),
    st.sampled_from([0.1, 0.2, 0.5, 1.0]),
)
def test_a_share_of_the_tokens_is_kept_and_those_are_the_least_sure(
    nats: list[float], fraction: float
) -> None:
    entropy = tensor([nats])
    kept = top_entropy(entropy, torch.ones(1, len(nats), dtype=torch.bool), fraction=fraction)
    assert kept.sum() >= fraction * len(nats) - 1
    if not kept.all():
        assert entropy[kept].min() > entropy[~kept].max()
    assert kept.any()


def test_the_share_is_of_the_tokens_that_train() -> None:
    entropy, mask = tensor([[1.0, 2.0, 9.0, 9.0]]), torch.tensor([[True, True, False, False]])
    assert top_entropy(entropy, mask, fraction=0.5).tolist() == [[False, True, False, False]]


def test_nothing_is_kept_where_nothing_trains() -> None:
    mask = torch.zeros(2, 3, dtype=torch.bool)
    assert not top_entropy(torch.rand(2, 3), mask, fraction=0.5).any()
