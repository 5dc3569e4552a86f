"""The estimator of the divergence to a reference policy."""

from math import inf, nan
from typing import Any

import pytest
import torch
from golden import assert_close, cases, tensor
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from verigrad.core.aggregation import token_mean
from verigrad.core.kl import k3

ONE = torch.tensor([[True]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize(("inputs", "expected"), cases("kl"))
def test_golden_divergences(
    inputs: dict[str, Any], expected: dict[str, Any], dtype: torch.dtype
) -> None:
    new = tensor(inputs["new_logprobs"], dtype).requires_grad_()
    mask = torch.tensor(inputs["mask"]).bool()
    per_token = k3(new, tensor(inputs["ref_logprobs"], dtype), mask)
    weights = token_mean(mask, torch.zeros(len(mask), dtype=torch.int64)).to(dtype)
    loss = (weights * per_token).sum()
    loss.backward()
    assert_close(per_token.detach(), expected["per_token_kl"])
    assert_close(loss.detach(), expected["loss"])
    assert new.grad is not None
    assert_close(new.grad, expected["grad_new_logprobs"])


@pytest.mark.parametrize(("inputs", "expected"), cases("tabular_kl"))
def test_golden_expected_gradient_is_that_of_the_forward_divergence(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    logits, reference = tensor(inputs["logits"]).requires_grad_(), tensor(inputs["ref"])
    log_probs = logits.log_softmax(dim=-1)
    per_token = k3(log_probs, reference.log(), torch.ones(3, dtype=torch.bool))
    (gradient,) = torch.autograd.grad((log_probs.exp().detach() * per_token).sum(), logits)
    assert torch.allclose(gradient, tensor(expected["k3_in_loss"]), rtol=0, atol=1e-12)
    assert torch.allclose(gradient, log_probs.exp() - reference, rtol=0, atol=1e-12)


@given(
    st.lists(st.floats(-3, 3), min_size=4, max_size=4),
    st.lists(st.floats(-3, 3), min_size=4, max_size=4),
)
def test_its_mean_over_the_policy_is_the_divergence(ours: list[float], theirs: list[float]) -> None:
    log_probs, reference = tensor(ours).log_softmax(-1), tensor(theirs).log_softmax(-1)
    mean = (log_probs.exp() * k3(log_probs, reference, torch.ones(4, dtype=torch.bool))).sum()
    exact = (log_probs.exp() * (log_probs - reference)).sum()
    assert mean.item() == pytest.approx(exact.item(), abs=1e-12)


@given(st.floats(-50, 0), st.floats(-50, 0))
def test_it_is_never_negative(ours: float, theirs: float) -> None:
    assert k3(tensor([[ours]]), tensor([[theirs]]), ONE).item() >= 0


@pytest.mark.parametrize("garbage", [nan, inf, -inf])
def test_whatever_stands_behind_the_mask_changes_nothing(garbage: float) -> None:
    mask = torch.tensor([[True, False]])

    def value_and_gradient(ours: float, theirs: float) -> tuple[list[Any], list[Any]]:
        new: Tensor = tensor([[-1.0, ours]]).requires_grad_()
        value = k3(new, tensor([[-2.0, theirs]]), mask)
        return value.tolist(), torch.autograd.grad(value.sum(), new)[0].tolist()

    assert value_and_gradient(garbage, garbage) == value_and_gradient(-0.5, -0.5)
