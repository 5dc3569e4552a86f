"""Completions that another policy sampled: what corrects for it, and what is measured of it."""

from dataclasses import replace

import pytest
import torch
from builders import assert_same_gradient, batch_of, gradient_of, make_algorithm, make_table
from steps import DEAD, LIVE, TEMPERATURE, batch_by, groups_of, measured_by
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.batch import make_batch
from verigrad.config.algorithm import CORRECTIONS
from verigrad.core.logprobs import token_log_probs
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.step import loss_of
from verigrad.types import Group


def sampled_by(policy: TabularPolicy) -> list[Group]:
    """The step above with the log-probs that a policy would have reported."""

    def reported(group: Group) -> Group:
        rollouts = []
        for one in group.rollouts:
            ids = one.completion.token_ids
            logits = policy.table.detach()[one.prompt.token_ids[0], : len(ids)]
            values = token_log_probs(logits, torch.tensor(ids), 0.7).tolist()
            rollouts.append(
                replace(one, completion=replace(one.completion, log_probs=tuple(values)))
            )
        return replace(group, rollouts=tuple(rollouts))

    return [reported(group) for group in groups_of()]


@pytest.mark.parametrize("name", CORRECTIONS)
def test_a_correction_of_a_sampler_that_is_the_trainer_changes_no_bit(name: str) -> None:
    policy = make_table()
    algorithm = make_algorithm(correction=name)
    batch = make_batch(
        sampled_by(policy), algorithm, measure=measured_by(policy), dtype=torch.float64
    )
    assert batch is not None
    assert batch.correction is not None
    assert torch.equal(batch.correction, batch.mask.double())
    expected = gradient_of(policy, batch_of(sampled_by(policy), algorithm_without(name)), algorithm)
    assert torch.equal(gradient_of(policy, batch, algorithm), expected)


def algorithm_without(correction: str) -> Algorithm:
    return replace(make_algorithm(correction=correction), correction=None)


@pytest.mark.parametrize("name", CORRECTIONS)
def test_every_correction_that_a_configuration_accepts_reaches_the_gradient(name: str) -> None:
    policy = make_table()
    plain = gradient_of(
        policy, batch_by(policy, make_algorithm("grpo"), [LIVE, DEAD]), make_algorithm("grpo")
    )
    algorithm = make_algorithm("grpo", correction=name)
    found = gradient_of(policy, batch_by(policy, algorithm, [LIVE, DEAD]), algorithm)
    assert not torch.allclose(found, plain)


def test_a_correction_multiplies_the_policy_loss_and_not_the_divergence() -> None:
    policy, sampler, reference = make_table(), make_table(seed=1), make_table(seed=2)
    both = make_algorithm(
        "rloo", kl="k2", kl_beta=0.5, correction="token_truncated", correction_cap=1.5
    )

    def gradient(algorithm: Algorithm) -> Tensor:
        batch = make_batch(
            sampled_by(sampler),
            algorithm,
            measure=measured_by(policy, reference if algorithm.divergence else None),
            dtype=torch.float64,
        )
        assert batch is not None
        return gradient_of(policy, batch, algorithm).clone()

    uncorrected = replace(both, correction=None)
    without_term = replace(both, divergence=None)
    term = gradient(uncorrected) - gradient(replace(uncorrected, divergence=None))
    assert term.any()
    assert_same_gradient(gradient(both), gradient(without_term) + term)
    plain = replace(uncorrected, divergence=None)
    assert not torch.allclose(gradient(without_term), gradient(plain))


def test_a_corrected_gradient_is_that_of_ratios_to_the_sampler() -> None:
    """Decoupled: the correction is old over sampler, and the loss's own ratio new over old."""
    policy, old, sampler = make_table(), make_table(seed=1), make_table(seed=2)
    algorithm = make_algorithm(
        "dr_grpo", clip_low=1.0, clip_high=1e9, correction="token_truncated", correction_cap=1e9
    )
    algorithm = replace(algorithm, epochs=2)
    batch = make_batch(
        sampled_by(sampler), algorithm, measure=measured_by(old), dtype=torch.float64
    )
    assert batch is not None
    actual = gradient_of(policy, batch, algorithm).clone()
    ratio = (policy.score(batch, 0.7).log_probs - batch.sampling_log_probs).exp()
    wanted = -(batch.weights * batch.advantages * ratio).sum()
    assert_same_gradient(actual, torch.autograd.grad(wanted, policy.table)[0])


def test_the_correction_stays_that_of_the_policy_before_the_first_update() -> None:
    policy = make_table()
    algorithm = make_algorithm("grpo", correction="token_truncated", correction_cap=2.0)
    batch = batch_by(policy, algorithm, [LIVE, DEAD])
    old = policy.score(batch, TEMPERATURE).log_probs.detach()
    later = make_table(seed=1)
    new = later.score(batch, TEMPERATURE).log_probs.detach()
    per_token = algorithm.loss(new, old, batch.advantages, batch.mask)
    weight = (old - batch.sampling_log_probs).exp().clamp(max=2.0)
    wanted = float((batch.weights * weight * per_token).sum())
    assert loss_of(later, batch, algorithm, TEMPERATURE).loss.item() == pytest.approx(wanted)


def test_tokens_that_a_correction_rejects_stay_in_the_denominator() -> None:
    algorithm = make_algorithm(
        "grpo", aggregation="token_mean", correction="token_masked", correction_low=0.4
    )
    batch = batch_by(make_table(), algorithm, [LIVE])
    assert batch.correction is not None
    assert 0 < int((batch.correction[batch.mask] == 0).sum()) < 5
    assert batch.weights[batch.mask].tolist() == pytest.approx([1 / 5] * 5)


def test_the_mismatch_is_measured_before_anything_is_truncated() -> None:
    policy = make_table()
    algorithm = make_algorithm("grpo", correction="token_truncated", correction_cap=2.0)
    batch = batch_by(policy, algorithm, [LIVE, DEAD])
    far = replace(batch, sampling_log_probs=policy.score(batch, TEMPERATURE).log_probs.detach() - 3)
    output = loss_of(policy, far, algorithm, TEMPERATURE)
    assert output.mismatch == pytest.approx(3 * output.tokens)
    assert output.largest_mismatch == pytest.approx(3)
