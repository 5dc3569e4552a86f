"""Log-probs and entropy of the policy that is sampled from."""

from math import inf, log
from typing import Any

import pytest
import torch
from golden import assert_close, cases, tensor
from hypothesis import given
from hypothesis import strategies as st

from verigrad.core.logprobs import entropy, tempered, token_log_probs

LOGITS = st.lists(st.floats(-30, 30), min_size=5, max_size=5)
TEMPERATURE = st.floats(0.1, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize(
    ("inputs", "expected"), cases("logprob_temperature_1.0", "logprob_temperature_0.7")
)
def test_golden_log_probs_entropy_and_gradient(
    inputs: dict[str, Any], expected: dict[str, Any], dtype: torch.dtype
) -> None:
    logits = tensor(inputs["logits"], dtype).requires_grad_()
    log_probs = token_log_probs(logits, torch.tensor(inputs["tokens"]), inputs["temperature"])
    log_probs.sum().backward()
    assert_close(log_probs.detach(), expected["logprobs"])
    assert_close(entropy(logits.detach(), inputs["temperature"]), expected["entropy"])
    assert logits.grad is not None
    assert_close(logits.grad, expected["grad_logits_of_sum"])


@pytest.mark.parametrize(("inputs", "expected"), cases("logprob_topk2", "logprob_topp0.9"))
def test_golden_log_probs_are_those_of_the_whole_distribution(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """A sampler that kept the likeliest tokens only would report others: here it keeps all."""
    logits = tensor(inputs["logits"] * 4)
    ours = token_log_probs(logits, torch.arange(4), 1.0)
    assert_close(ours, expected["untruncated_logprobs"])
    kept = expected["kept"]
    assert ours[kept].exp().sum().item() == pytest.approx(expected["kept_mass"], abs=1e-12)
    ratios = (ours[kept] - tensor(expected["behaviour_logprobs"])[kept]).exp().tolist()
    assert ratios == pytest.approx([expected["kept_mass"]] * len(kept), abs=1e-12)


@given(LOGITS, TEMPERATURE)
def test_they_are_those_of_the_softmax_of_logits_over_temperature(
    logits: list[float], temperature: float
) -> None:
    expected = (tensor(logits) / temperature).log_softmax(dim=-1)
    actual = token_log_probs(tensor([logits] * 5), torch.arange(5), temperature)
    assert torch.allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@given(LOGITS, TEMPERATURE)
def test_a_log_prob_is_at_most_zero(
    dtype: torch.dtype, logits: list[float], temperature: float
) -> None:
    table = torch.tensor([logits] * 5).to(dtype)
    assert token_log_probs(table, torch.arange(5), temperature).max() <= 0


@given(LOGITS, TEMPERATURE)
def test_entropy_is_the_mean_of_minus_log_prob(logits: list[float], temperature: float) -> None:
    log_probs = token_log_probs(tensor([logits] * 5), torch.arange(5), temperature)
    expected = -(log_probs.exp() * log_probs).sum().item()
    assert entropy(tensor([logits]), temperature).item() == pytest.approx(expected, abs=1e-11)


def test_at_temperature_zero_they_are_those_of_the_untempered_policy() -> None:
    logits, tokens = tensor([[2.0, -1.0, 0.5]]), torch.tensor([2])
    assert torch.equal(token_log_probs(logits, tokens, 0), token_log_probs(logits, tokens, 1))


def test_half_precision_logits_are_computed_in_float32() -> None:
    logits = torch.tensor([[3.0, 1.0, -2.0]], dtype=torch.bfloat16)
    actual = token_log_probs(logits, torch.tensor([1]), 0.7)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, token_log_probs(logits.float(), torch.tensor([1]), 0.7))


def test_float64_logits_stay_float64() -> None:
    assert tempered(tensor([1.0, 2.0]), 0.7).dtype == torch.float64


def test_an_impossible_token_contributes_nothing_to_the_entropy() -> None:
    assert entropy(tensor([[0.0, -inf, 0.0]]), 1).item() == pytest.approx(log(2), abs=1e-15)


def test_the_entropy_of_equal_logits_is_the_log_of_their_number() -> None:
    assert entropy(tensor([[7.0] * 5]), 0.3).item() == pytest.approx(log(5), abs=1e-14)


def test_rows_and_positions_are_scored_at_once() -> None:
    logits = tensor([[[0.0, 1.0], [2.0, 0.0]], [[1.0, 1.0], [0.0, 3.0]]])
    tokens = torch.tensor([[0, 1], [1, 0]])
    expected = [
        [token_log_probs(logits[row, t], tokens[row, t], 1).item() for t in (0, 1)]
        for row in (0, 1)
    ]
    assert token_log_probs(logits, tokens, 1).tolist() == expected
