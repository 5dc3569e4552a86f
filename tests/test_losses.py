"""Log-probs and advantages to loss per token."""

from functools import partial
from inspect import signature
from math import exp, inf, log, nan
from typing import Any

import pytest
import torch
from builders import Rows, make_algorithm, make_group
from golden import CORRECTIONS, Fixed, assert_close, cases, tensor
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.algorithms.algorithm import AggregationFunction, LossFunction
from verigrad.batch import Batch, Measured, make_batch
from verigrad.config.algorithm import LOSSES
from verigrad.core import aggregation, corrections, losses
from verigrad.training.step import loss_of

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])


RENAMED = {"eps": "clip", "tau": "tau", "k": "k", "lam": "lambda", "tv": "tv"}
ENDS = {"low": "low", "high": "high", "pos": "positive", "neg": "negative"}


def renamed(params: dict[str, float]) -> dict[str, float]:
    """Numbers of a loss under the library's names: eps_low is clip_low, lam_pos lambda_positive."""
    found = {}
    for key, value in params.items():
        stem, _, end = key.rpartition("_")
        found[f"{RENAMED[stem]}_{ENDS[end]}" if stem in RENAMED else key] = value
    return found


def bound(kind: str, params: dict[str, float]) -> LossFunction:
    """The loss of that name, with the numbers that it takes."""
    function = getattr(losses, kind)
    takes = signature(function).parameters
    return partial(function, **{k: v for k, v in renamed(params).items() if k in takes})


def aggregation_of(inputs: dict[str, Any]) -> AggregationFunction:
    function: Any = getattr(aggregation, inputs["agg"])
    length = inputs["agg_params"].get("L")
    return partial(function, length=length) if inputs["agg"] == "const_norm" else function


def objective(inputs: dict[str, Any]) -> Algorithm:
    """The algorithm of a golden loss: its loss, weights, correction, and mask of rows that left."""
    correction = None
    if "is_kind" in inputs:
        correction = partial(CORRECTIONS[inputs["is_kind"]], **inputs["is_params"])
    return Algorithm(
        name="golden",
        advantages=lambda scores: scores.rewards,
        loss=bound(inputs["kind"], inputs["params"]),
        aggregation=aggregation_of(inputs),
        correction=correction,
        off_policy_delta=inputs.get("opsm_delta"),
    )


def golden_batch(inputs: dict[str, Any], algorithm: Algorithm, dtype: torch.dtype) -> Batch:
    """The log-probs, advantages and weights of a golden loss, as what an update is made from."""
    mask = torch.tensor(inputs["mask"]).bool()
    old = tensor(inputs["old_logprobs"], dtype)
    sampled = tensor(inputs.get("rollout_logprobs", inputs["old_logprobs"]), dtype)
    advantages = tensor(inputs["advantages"], dtype)
    if advantages.dim() == 1:
        advantages = advantages.unsqueeze(1).expand(mask.shape)
    group_index = torch.tensor(inputs["group_ids"] or [0] * len(mask))
    correction = algorithm.correction(old, sampled, mask) if algorithm.correction else None
    return Batch(
        prompts=(),
        group_index=group_index,
        token_ids=torch.zeros_like(mask, dtype=torch.int64),
        lengths=mask.sum(dim=1),
        mask=mask,
        sampling_log_probs=sampled,
        old_log_probs=old,
        advantages=advantages,
        weights=algorithm.aggregation(mask, group_index).to(dtype),
        correction=correction,
    )


@DTYPES
@pytest.mark.parametrize(("inputs", "expected"), cases("policy_loss"))
def test_golden_losses_through_the_loss_of_an_update(
    inputs: dict[str, Any], expected: dict[str, Any], dtype: torch.dtype
) -> None:
    algorithm = objective(inputs)
    batch = golden_batch(inputs, algorithm, dtype)
    policy = Fixed(tensor(inputs["new_logprobs"], dtype))
    loss = loss_of(policy, batch, algorithm, temperature=1.0).loss
    assert_close(loss.detach(), expected["loss"])
    (gradient,) = torch.autograd.grad(loss, policy.log_probs)
    alternative = expected.get("grad_alternative") or expected["grad_new_logprobs"]
    if not torch.equal(gradient, tensor(alternative, dtype)):
        assert_close(gradient, expected["grad_new_logprobs"])


@DTYPES
@pytest.mark.parametrize(("inputs", "expected"), cases("policy_loss"))
def test_golden_losses_per_token(
    inputs: dict[str, Any], expected: dict[str, Any], dtype: torch.dtype
) -> None:
    algorithm = objective(inputs)
    batch = golden_batch(inputs, algorithm, dtype)
    new = tensor(inputs["new_logprobs"], dtype)
    assert batch.old_log_probs is not None
    per_token = algorithm.loss(new, batch.old_log_probs, batch.advantages, batch.mask)
    if "is_weights" in inputs:
        weights = batch.correction
        if algorithm.off_policy_delta is not None:
            weights = corrections.off_policy_mask(
                new,
                batch.sampling_log_probs,
                batch.advantages,
                batch.mask,
                delta=algorithm.off_policy_delta,
            )
        assert weights is not None
        assert_close(weights, (tensor(inputs["is_weights"]) * batch.mask).tolist())
        per_token = per_token * weights
    assert_close(per_token, expected["per_token_loss"])


@DTYPES
@pytest.mark.parametrize(("inputs", "expected"), cases("end_to_end"))
def test_golden_rewards_to_gradient_through_batch_and_update(
    inputs: dict[str, Any], expected: dict[str, Any], dtype: torch.dtype
) -> None:
    """Groups of completions, with what is measured on them: the algorithm by its configuration."""
    params = renamed(inputs["params"])
    algorithm = make_algorithm(
        "rloo",
        advantage=inputs["estimator"],
        advantage_eps=inputs["estimator_params"].get("eps"),
        loss=inputs["kind"],
        aggregation=inputs["agg"],
        kl=inputs["kl"],
        kl_beta=inputs["beta"] or None,
        # The old log-probs are used where there is a second update.
        epochs=2,
        max_new_tokens=inputs["agg_params"].get("L", 5),
        **params,
    )
    old, reference = (tensor(inputs[key], dtype) for key in ("old_logprobs", "ref_logprobs"))
    lengths = [sum(row) for row in inputs["mask"]]
    rows: dict[int, Rows] = {}
    for group, length, reward in zip(inputs["group_ids"], lengths, inputs["rewards"], strict=True):
        rows.setdefault(group, []).append(((1,) * length, reward))
    batch = make_batch(
        [make_group(row, some) for row, some in rows.items()],
        algorithm,
        measure=lambda tokens: Measured(
            old_log_probs=old,
            entropy=torch.zeros_like(old),
            reference_log_probs=reference if algorithm.divergence else None,
        ),
        dtype=dtype,
    )
    assert batch is not None
    assert batch.mask.int().tolist() == inputs["mask"]
    assert_close(batch.advantages[:, 0], expected["advantages"])
    policy = Fixed(tensor(inputs["new_logprobs"], dtype))
    loss = loss_of(policy, batch, algorithm, temperature=1.0).loss
    assert_close(loss.detach(), expected["loss"])
    (gradient,) = torch.autograd.grad(loss, policy.log_probs)
    assert_close(gradient, expected["grad_new_logprobs"])


def test_gspo_per_token_is_gspo_where_a_row_has_one_advantage() -> None:
    """Value and gradient, at ratios inside and outside the bounds."""
    new = tensor([[-0.5, -1.5, -1.0], [-2.0, -0.1, -0.3], [-1.0, -1.0, -1.0]])
    old = tensor([[-0.5002, -1.5, -1.0], [-1.0, -0.6, -0.9], [-0.7, -1.0, -1.2]])
    mask = torch.tensor([[True] * 3, [True, True, False], [True] * 3])
    advantages = tensor([[1.0] * 3, [-1.0] * 3, [0.5] * 3])
    found = []
    for loss in (losses.gspo, losses.gspo_token):
        leaf = new.clone().requires_grad_()
        weights = aggregation.seq_mean_token_mean(mask, torch.zeros(3, dtype=torch.int64))
        value = (weights * loss(leaf, old, advantages, mask)).sum()
        found.append((value.item(), torch.autograd.grad(value, leaf)[0]))
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-15)
    assert torch.allclose(found[0][1], found[1][1], rtol=0, atol=1e-15)
    assert found[0][1].any()


def algorithm_with(loss: str) -> Algorithm:
    """A configuration with a loss: all of them go with the mean over rows of means over tokens."""
    return make_algorithm("rloo", loss=loss, aggregation="seq_mean_token_mean")


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
        per_token = algorithm_with(name).loss(new, old, advantages, mask)
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


def test_a_ratio_of_one_has_loss_zero_over_a_group_and_still_a_gradient() -> None:
    new = tensor([[-1.0], [-2.0]]).requires_grad_()
    advantages = tensor([[1.0], [-1.0]])
    loss = losses.ppo_clip(new, new.detach(), advantages, torch.ones(2, 1, dtype=torch.bool)).sum()
    assert loss.item() == 0
    assert torch.equal(torch.autograd.grad(loss, new)[0], -advantages)


def gradient_of_ratios(ratios: list[float], advantage: float, name: str, **bounds: float) -> Any:
    """The gradient of the loss at each of some ratios, by the name a configuration gives it."""
    new = tensor([[log(ratio) for ratio in ratios]]).requires_grad_()
    old, mask = torch.zeros_like(new), torch.ones(1, len(ratios), dtype=torch.bool)
    algorithm = make_algorithm("rloo", loss=name, aggregation="token_mean", **bounds)
    per_token = algorithm.loss(new, old, torch.full_like(new, advantage), mask)
    return torch.autograd.grad(per_token.sum(), new)[0][0].tolist()


@pytest.mark.parametrize(("sign", "clipped"), [(1, [3]), (-1, [0])])
def test_the_bounds_of_the_clipped_loss_stand_apart(sign: float, clipped: list[int]) -> None:
    ratios = [0.75, 0.85, 1.25, 1.35]
    found = gradient_of_ratios(ratios, sign, "ppo_clip", clip_low=0.2, clip_high=0.3)
    expected = [0 if place in clipped else -sign * r for place, r in enumerate(ratios)]
    assert found == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "bounds", "vanishes"),
    [
        ("ppo_clip", {"dual_clip": 3.0}, True),
        ("ppo_clip", {"delta": 3.0}, True),
        ("ppo_clip", {}, False),
        ("cispo", {"clip_low": 1.0, "clip_high": 4.0}, False),
    ],
)
def test_what_a_lost_token_does_at_a_large_ratio(
    name: str, bounds: dict[str, float], vanishes: bool
) -> None:
    near, far = gradient_of_ratios([2.0, 10.0], -1.0, name, **bounds)
    assert near == pytest.approx(2.0)
    assert (far == 0) == vanishes


def test_the_weight_of_cispo_is_capped_and_never_gone() -> None:
    found = gradient_of_ratios([1e-3, 1.0, 7.0], 1.0, "cispo", clip_low=1.0, clip_high=4.0)
    assert found == pytest.approx([-1e-3, -1.0, -5.0])


def test_bounds_that_a_configuration_leaves_out_are_the_losses_own() -> None:
    """The ratio of gspo is a mean, so its bounds are a thousand times tighter."""
    assert gradient_of_ratios([1.001], 1.0, "gspo_token") == [0.0]
    assert gradient_of_ratios([1.001], 1.0, "gspo_token", clip_high=0.2) == [pytest.approx(-1.001)]
