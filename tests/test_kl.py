"""Estimators of the divergence from a reference policy: values, gradients, and where they go."""

from functools import partial
from math import exp, inf, nan
from typing import Any

import pytest
import torch
from golden import assert_close, cases, tensor
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from verigrad.algorithms.build import DIVERGENCES
from verigrad.core import advantages, kl
from verigrad.core.aggregation import token_mean
from verigrad.core.kl import k3
from verigrad.core.shaping import divergence_in_reward

BY_GOLDEN_NAME: dict[str, Any] = {
    "k1": kl.k1,
    "abs": kl.absolute,
    "k2": kl.k2,
    "k3": kl.k3,
    "k3_value_k2_grad": kl.k3_value_k2_gradient,
    "k3_is": kl.ratio_k3,
    "k1_is": kl.ratio_k1,
}

IN_LOSS = [name for name, estimator in DIVERGENCES.items() if estimator is not None]
"""The names of terms in the loss that a configuration accepts."""

ONE = torch.tensor([[True]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
@pytest.mark.parametrize(("inputs", "expected"), cases("kl"))
def test_golden_divergences(
    inputs: dict[str, Any], expected: dict[str, Any], dtype: torch.dtype
) -> None:
    new = tensor(inputs["new_logprobs"], dtype).requires_grad_()
    mask = torch.tensor(inputs["mask"]).bool()
    estimator = BY_GOLDEN_NAME[inputs["kind"]]
    if "out_clamp" in inputs["params"]:
        estimator = partial(estimator, limit=inputs["params"]["out_clamp"])
    old, reference = (tensor(inputs[key], dtype) for key in ("old_logprobs", "ref_logprobs"))
    per_token = estimator(new, old, reference, mask)
    weights = token_mean(mask, torch.zeros(len(mask), dtype=torch.int64)).to(dtype)
    loss = (weights * per_token).sum()
    loss.backward()
    assert_close(per_token.detach(), expected["per_token_kl"])
    assert_close(loss.detach(), expected["loss"])
    assert new.grad is not None
    assert_close(new.grad, expected["grad_new_logprobs"])


@pytest.mark.parametrize(("inputs", "expected"), cases("kl_in_reward"))
def test_golden_divergence_in_the_reward(inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    mask = torch.tensor(inputs["mask"]).bool()
    gap = tensor(inputs["old_logprobs"]) - tensor(inputs["ref_logprobs"])
    shaped = divergence_in_reward(tensor(inputs["rewards"]), gap, mask, beta=inputs["beta"])
    assert_close((gap * mask).sum(dim=1), expected["sequence_kl"])
    assert_close(shaped, expected["shaped_rewards"])
    values = advantages.rloo(shaped, torch.tensor(inputs["group_ids"]))
    assert_close(values, expected["advantages"])


def expected_gradient(
    estimator: Any, logits: Tensor, sampled: Tensor, reference: Tensor, *, in_reward: bool = False
) -> Tensor:
    """The gradient of a term, averaged over one-token completions drawn from ``sampled``."""
    log_probs = logits.log_softmax(dim=-1)
    every = torch.ones(len(logits), dtype=torch.bool)
    term = estimator(log_probs, sampled.log(), reference.log(), every)
    # In the reward the term is a number that multiplies the score.
    value = term.detach() * log_probs if in_reward else term
    (gradient,) = torch.autograd.grad((sampled * value).sum(), logits)
    return gradient


@pytest.mark.parametrize(("inputs", "expected"), cases("tab_kl_gradients"))
def test_golden_expected_gradients_of_every_placement(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    logits, reference = tensor(inputs["logits"]).requires_grad_(), tensor(inputs["ref"])
    probabilities = logits.detach().softmax(dim=-1)
    older = tensor(inputs["old_for_offpolicy"])
    names = [key for key in expected if key.endswith(("_in_loss", "_in_reward"))]
    assert len(names) == 13
    for name in names:
        sampled = older if name.startswith("offpolicy_") else probabilities
        estimator, _, place = name.removeprefix("offpolicy_").rpartition("_in_")
        actual = expected_gradient(
            BY_GOLDEN_NAME[estimator], logits, sampled, reference, in_reward=place == "reward"
        )
        assert torch.allclose(actual, tensor(expected[name]), rtol=0, atol=1e-12), name


@pytest.mark.parametrize(("inputs", "expected"), cases("tab_kl_gradients"))
def test_which_terms_have_the_gradient_of_which_divergence(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The names of a configuration: all have the reverse one but k3, which has the forward one."""
    logits, reference = tensor(inputs["logits"]).requires_grad_(), tensor(inputs["ref"])
    probabilities = logits.detach().softmax(dim=-1)
    for name in IN_LOSS:
        actual = expected_gradient(DIVERGENCES[name], logits, probabilities, reference)
        wanted = expected["grad_forward_KL" if name == "k3" else "grad_reverse_KL"]
        assert torch.allclose(actual, tensor(wanted), rtol=0, atol=1e-12), name
    assert torch.allclose(tensor(expected["grad_forward_KL"]), probabilities - reference)


@given(
    st.lists(st.floats(-3, 3), min_size=4, max_size=4),
    st.lists(st.floats(-3, 3), min_size=4, max_size=4),
)
def test_the_mean_of_k1_and_k3_over_the_policy_is_the_divergence(
    ours: list[float], theirs: list[float]
) -> None:
    log_probs, reference = tensor(ours).log_softmax(-1), tensor(theirs).log_softmax(-1)
    exact = (log_probs.exp() * (log_probs - reference)).sum()
    for estimator in (kl.k1, kl.k3, kl.ratio_k1, kl.ratio_k3, kl.k3_value_k2_gradient):
        value = estimator(log_probs, log_probs, reference, torch.ones(4, dtype=torch.bool))
        assert (log_probs.exp() * value).sum().item() == pytest.approx(exact.item(), abs=1e-12)


@given(st.floats(-50, 0), st.floats(-50, 0))
def test_k3_is_never_negative(ours: float, theirs: float) -> None:
    assert k3(tensor([[ours]]), tensor([[ours]]), tensor([[theirs]]), ONE).item() >= 0


@pytest.mark.parametrize("name", IN_LOSS)
def test_a_policy_that_is_its_reference_has_no_term_and_no_gradient_of_it(name: str) -> None:
    """But for ratio_k1, whose gradient there is the score itself: 0 on average only."""
    new = tensor([[-0.5, -1.5]]).requires_grad_()
    estimator = DIVERGENCES[name]
    assert estimator is not None
    value = estimator(new, new.detach(), new.detach(), torch.ones(1, 2, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(value.sum(), new)
    assert value.tolist() == [[0, 0]]
    assert gradient.tolist() == ([[1, 1]] if name == "ratio_k1" else [[0, 0]])


@pytest.mark.parametrize("name", [*IN_LOSS, "k1", "abs"])
@pytest.mark.parametrize("garbage", [nan, inf, -inf])
def test_whatever_stands_behind_the_mask_changes_nothing(name: str, garbage: float) -> None:
    mask = torch.tensor([[True, False]])
    estimator: Any = DIVERGENCES.get(name) or BY_GOLDEN_NAME[name]

    def value_and_gradient(ours: float, others: float) -> tuple[list[Any], list[Any]]:
        new: Tensor = tensor([[-1.0, ours]]).requires_grad_()
        value = estimator(new, tensor([[-1.5, others]]), tensor([[-2.0, others]]), mask)
        return value.tolist(), torch.autograd.grad(value.sum(), new)[0].tolist()

    assert value_and_gradient(garbage, garbage) == value_and_gradient(-0.5, -0.5)


def test_a_policy_far_from_its_reference_is_still_pulled_back() -> None:
    """Clamping the result, which is possible on request, would remove the gradient."""
    far, reference = tensor([[-9.0]]).requires_grad_(), tensor([[-1.0]])
    (gradient,) = torch.autograd.grad(k3(far, far, reference, ONE).sum(), far)
    assert gradient.item() == pytest.approx(1 - exp(8), rel=1e-12)
    clamped = k3(far, far, reference, ONE, limit=10.0)
    assert torch.autograd.grad(clamped.sum(), far)[0].tolist() == [[0]]
