"""Log-probs and advantages to loss per token."""

from math import exp, inf, log, nan
from typing import Any

import pytest
import torch
from builders import make_algorithm
from golden import assert_close, cases, tensor
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from verigrad.algorithms import Scores
from verigrad.config.schema import LOSSES
from verigrad.core import aggregation, losses

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])


def weights_of(inputs: dict[str, Any], mask: Tensor) -> Tensor:
    options = {"length": inputs["agg_params"]["L"]} if inputs["agg"] == "const_norm" else {}
    group_index = torch.zeros(len(mask), dtype=torch.int64)
    weights: Tensor = getattr(aggregation, inputs["agg"])(mask, group_index, **options)
    return weights


def per_token_of(inputs: dict[str, Any], new: Tensor, mask: Tensor) -> Tensor:
    old = tensor(inputs["old_logprobs"], new.dtype)
    advantages = tensor(inputs["advantages"], new.dtype)
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(1).expand(mask.shape)
    if inputs["kind"] == "reinforce":
        return losses.reinforce(new, old, advantages, mask)
    if inputs["kind"] == "on_policy":
        return losses.ppo_clip(new, new.detach(), advantages, mask)
    bounds = {"clip_low": inputs["params"]["eps_low"], "clip_high": inputs["params"]["eps_high"]}
    return losses.ppo_clip(new, old, advantages, mask, **bounds)


@DTYPES
@pytest.mark.parametrize(("inputs", "expected"), cases("policy_loss"))
def test_golden_losses(
    inputs: dict[str, Any], expected: dict[str, Any], dtype: torch.dtype
) -> None:
    new = tensor(inputs["new_logprobs"], dtype).requires_grad_()
    mask = torch.tensor(inputs["mask"]).bool()
    per_token = per_token_of(inputs, new, mask)
    loss = (weights_of(inputs, mask).to(dtype) * per_token).sum()
    loss.backward()
    assert_close(per_token.detach(), expected["per_token_loss"])
    assert_close(loss.detach(), expected["loss"])
    assert new.grad is not None
    alternative = expected.get("grad_alternative", expected["grad_new_logprobs"])
    if not torch.equal(new.grad, tensor(alternative, dtype)):
        assert_close(new.grad, expected["grad_new_logprobs"])


@DTYPES
@pytest.mark.parametrize(("inputs", "expected"), cases("end_to_end"))
def test_golden_rewards_to_gradient_through_an_algorithm(
    inputs: dict[str, Any], expected: dict[str, Any], dtype: torch.dtype
) -> None:
    algorithm = make_algorithm(
        advantage=inputs["estimator"],
        loss=inputs["kind"],
        aggregation=inputs["agg"],
        clip_low=inputs["params"].get("eps_low"),
        clip_high=inputs["params"].get("eps_high"),
        max_new_tokens=inputs["agg_params"].get("L", 5),
    )
    new = tensor(inputs["new_logprobs"], dtype).requires_grad_()
    group_index, mask = torch.tensor(inputs["group_ids"]), torch.tensor(inputs["mask"]).bool()
    scores = Scores(rewards=tensor(inputs["rewards"]), group_index=group_index, mask=mask)
    advantages = algorithm.advantages(scores)
    per_token = algorithm.loss(
        new,
        tensor(inputs["old_logprobs"], dtype),
        advantages.to(dtype).unsqueeze(1).expand(mask.shape),
        mask,
    )
    loss = (algorithm.aggregation(mask, group_index).to(dtype) * per_token).sum()
    loss.backward()
    assert_close(advantages, expected["advantages"])
    assert_close(loss.detach(), expected["loss"])
    assert new.grad is not None
    assert_close(new.grad, expected["grad_new_logprobs"])


@pytest.mark.parametrize("name", LOSSES)
@given(st.lists(st.sampled_from([nan, inf, -inf, 1e30, -7.0]), min_size=3, max_size=3))
def test_whatever_stands_behind_the_mask_changes_nothing(name: str, garbage: list[float]) -> None:
    mask = torch.tensor([[True, True, False]])
    clean = [tensor([[-0.5, -1.5, 0.0]]), tensor([[-0.7, -0.9, 0.0]]), tensor([[2.0, -1.0, 0.0]])]
    dirty = [values.clone() for values in clean]
    for values, value in zip(dirty, garbage, strict=True):
        values[0, 2] = value

    def loss_and_gradient(new: Tensor, old: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
        new.requires_grad_()
        per_token = make_algorithm(loss=name).loss(new, old, advantages, mask)
        (gradient,) = torch.autograd.grad(per_token.sum(), new)
        return per_token.detach(), gradient

    for actual, expected in zip(loss_and_gradient(*dirty), loss_and_gradient(*clean), strict=True):
        assert torch.equal(actual, expected)
        assert actual[0, 2] == 0


@given(
    new=st.floats(-4, 0),
    old=st.floats(-4, 0),
    advantage=st.floats(-3, 3),
    low=st.floats(0, 1),
    high=st.floats(0, 2),
)
def test_the_clipped_gradient_is_minus_ratio_times_advantage_or_zero_beyond_the_bounds(
    new: float, old: float, advantage: float, low: float, high: float
) -> None:
    ratio = exp(new - old)
    assume(min(abs(ratio - (1 - low)), abs(ratio - (1 + high))) > 1e-9)
    beyond = (advantage > 0 and ratio > 1 + high) or (advantage < 0 and ratio < 1 - low)
    log_probs = tensor([[new]]).requires_grad_()
    arguments = log_probs, tensor([[old]]), tensor([[advantage]]), torch.tensor([[True]])
    loss = losses.ppo_clip(*arguments, clip_low=low, clip_high=high)
    (gradient,) = torch.autograd.grad(loss.sum(), log_probs)
    assert gradient.item() == pytest.approx(0.0 if beyond else -ratio * advantage, abs=1e-12)
    assert losses.clipped_tokens(*arguments, clip_low=low, clip_high=high).item() == beyond


def test_a_ratio_of_one_has_loss_zero_over_a_group_and_still_a_gradient() -> None:
    new = tensor([[-1.0], [-2.0]]).requires_grad_()
    advantages = tensor([[1.0], [-1.0]])
    loss = losses.ppo_clip(new, new.detach(), advantages, torch.ones(2, 1, dtype=torch.bool)).sum()
    assert loss.item() == 0
    assert torch.equal(torch.autograd.grad(loss, new)[0], -advantages)


def test_the_bounds_of_the_clipped_loss_stand_apart() -> None:
    ratios = [0.75, 0.85, 1.25, 1.35]
    new = tensor([[log(ratio) for ratio in ratios]])
    old, mask = torch.zeros_like(new), torch.ones(1, 4, dtype=torch.bool)
    for sign, clipped in [(1, [False, False, False, True]), (-1, [True, False, False, False])]:
        advantages = torch.full_like(new, sign)
        actual = losses.clipped_tokens(new, old, advantages, mask, clip_low=0.2, clip_high=0.3)
        assert actual.tolist() == [clipped]
    assert losses.ppo_clip(new, old, torch.ones_like(new), mask, clip_low=0.2, clip_high=0.3)[
        0, 3
    ] == pytest.approx(-1.3, abs=1e-15)


def test_a_masked_token_is_never_counted_as_clipped() -> None:
    new, old, advantages = tensor([[3.0, 3.0]]), tensor([[0.0, 0.0]]), tensor([[1.0, 1.0]])
    mask = torch.tensor([[True, False]])
    assert losses.clipped_tokens(new, old, advantages, mask).tolist() == [[True, False]]
