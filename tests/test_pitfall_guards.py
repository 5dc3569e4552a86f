"""Guards against known mistakes of trainers that no other test here turns red for.

``pitfalls.py`` names, for each known mistake, the tests that catch it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders import STOP, make_algorithm, make_group, make_table
from ragged import gradients, ragged_batch, relative_difference
from running import read_jsonl
from tiny import exact_policy
from torch import Tensor

import verigrad
from verigrad.algorithms import Algorithm, Scores
from verigrad.batch import Batch, Measure, cut, make_batch, minibatches
from verigrad.config.algorithm import ADVANTAGES, CORRECTIONS, DIVERGENCES
from verigrad.core import corrections, kl, logprobs
from verigrad.errors import ConfigError
from verigrad.policies.causal_lm import separate_logits
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.step import accumulate, loss_of, measure, update
from verigrad.types import Group

TEMPERATURE = 0.7
LIVE = make_group(0, [((1, 2, STOP), 1.0), ((3, STOP), 0.0)])
DEAD = make_group(1, [((2, STOP), 0.0), ((1, 1, 1, 1), 0.0)])


def measured_by(
    policy: TabularPolicy, reference: TabularPolicy | None = None, *, budget: int = 10**9
) -> Measure:
    """Scores the tokens of a step as the trainer does."""
    return lambda tokens: measure(
        policy, reference, tokens, temperature=TEMPERATURE, token_budget=budget
    )


def batch_by(
    policy: TabularPolicy,
    algorithm: Algorithm,
    groups: Sequence[Group] = (LIVE, DEAD),
    *,
    reference: TabularPolicy | None = None,
) -> Batch:
    """The batch of a step, measured by a policy and a reference."""
    measuring = measured_by(policy, reference)
    batch = make_batch(groups, algorithm, measure=measuring, dtype=torch.float64)
    assert batch is not None
    return batch


def gradient(
    policy: TabularPolicy, batch: Batch, algorithm: Algorithm, bonus: float = 0.0
) -> Tensor:
    """Of one update, 0 where nothing trains."""
    policy.table.grad = None
    accumulate(
        policy,
        batch,
        algorithm,
        temperature=TEMPERATURE,
        token_budget=10**9,
        entropy_coefficient=bonus,
    )
    return torch.zeros_like(policy.table) if policy.table.grad is None else policy.table.grad


def moved(policy: TabularPolicy, seed: int = 1) -> TabularPolicy:
    """Another policy of the same shape."""
    other = make_table(seed=seed)
    assert other.table.shape == policy.table.shape
    return other


# Denominators


def test_a_truncated_completion_that_is_masked_leaves_the_denominator() -> None:
    algorithm = make_algorithm("grpo", aggregation="token_mean", mask_truncated=True)
    rows = [((1, 2, STOP), 1.0), ((3, STOP), 0.0), ((1, 2, 3, 4), 0.0)]
    batch = make_batch([make_group(0, rows)], algorithm, dtype=torch.float64)
    assert batch is not None
    assert batch.weights[:, 0].tolist() == pytest.approx([1 / 5, 1 / 5, 0])


def test_tokens_that_are_left_out_of_the_policy_loss_stay_in_the_denominator() -> None:
    algorithm = make_algorithm("grpo", aggregation="token_mean", top_entropy=0.4)
    batch = batch_by(make_table(), algorithm, [LIVE])
    assert sorted(batch.weights[batch.mask].tolist()) == pytest.approx([0, 0, 0, 1 / 5, 1 / 5])


def test_tokens_that_a_correction_rejects_stay_in_the_denominator() -> None:
    algorithm = make_algorithm(
        "grpo", aggregation="token_mean", correction="token_masked", correction_low=0.4
    )
    batch = batch_by(make_table(), algorithm, [LIVE])
    assert batch.correction is not None
    assert 0 < int((batch.correction[batch.mask] == 0).sum()) < 5
    assert batch.weights[batch.mask].tolist() == pytest.approx([1 / 5] * 5)


def test_each_minibatch_has_the_denominator_of_its_own_rows() -> None:
    algorithm = make_algorithm("grpo", aggregation="token_mean", minibatches=2)
    batch = batch_by(make_table(), algorithm)
    parts = list(minibatches(batch, algorithm, order=[3, 0, 2, 1]))
    assert [part.lengths.tolist() for part in parts] == [[2, 4], [3, 2]]
    assert [float(part.weights.sum()) for part in parts] == pytest.approx([1, 1])


# Groups


@pytest.mark.parametrize("name", ADVANTAGES)
def test_one_completion_that_differs_gets_no_huge_advantage(name: str) -> None:
    algorithm = make_algorithm("grpo", advantage=name, pass_k=2)
    scores = Scores(
        rewards=torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64),
        group_index=torch.zeros(4, dtype=torch.int64),
        mask=torch.ones(4, 1, dtype=torch.bool),
    )
    advantages = algorithm.advantages(scores)
    assert 0 < advantages.abs().max() < 10


def test_the_same_prompt_drawn_twice_makes_two_groups() -> None:
    right = make_group(0, [((1, STOP), 1.0), ((2, STOP), 1.0)])
    wrong = make_group(0, [((1, STOP), 0.0), ((2, STOP), 0.0)])
    batch = make_batch([right, wrong], make_algorithm("grpo"))
    assert batch is not None
    assert batch.group_index.tolist() == [0, 0, 1, 1]
    assert not batch.advantages.any()


def test_a_punishment_for_length_brings_no_group_without_signal_back() -> None:
    algorithm = make_algorithm("dapo", overlong_share=0.5)
    assert algorithm.punish_length is not None
    assert make_batch([DEAD], algorithm) is None
    batch = make_batch([LIVE, DEAD], algorithm)
    assert batch is not None
    assert [prompt.problem_id for prompt in batch.prompts] == ["p0"]


def test_a_rollout_that_is_too_old_is_left_out_before_any_mean() -> None:
    algorithm = make_algorithm("dr_grpo", max_staleness=1)
    group = make_group(0, [((1, STOP), 1.0), ((2, STOP), 0.0), ((3, STOP), 0.0)])
    versions = (4, 3, 2)
    rollouts = tuple(
        replace(rollout, completion=replace(rollout.completion, policy_version=version))
        for rollout, version in zip(group.rollouts, versions, strict=True)
    )
    batch = make_batch([replace(group, rollouts=rollouts)], algorithm, policy_version=4)
    assert batch is not None
    assert batch.token_ids[:, 0].tolist() == [1, 2]
    assert batch.advantages[:, 0].tolist() == [0.5, -0.5]


def test_a_short_truncated_completion_trains_its_own_tokens_only() -> None:
    group = make_group(0, [((1, 2), 0.0), ((1, 2, 3, STOP), 1.0)])
    batch = make_batch([group], make_algorithm("grpo"))
    assert batch is not None
    assert batch.mask.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


# Entropy


def test_the_entropy_bonus_has_the_gradient_of_the_mean_entropy() -> None:
    algorithm = make_algorithm("grpo", entropy_coefficient=0.3)
    policy = make_table(problems=2, answers=3)
    batch = batch_by(policy, algorithm, [DEAD])
    found = gradient(policy, batch, algorithm, bonus=0.3)[1]

    def mean_entropy() -> float:
        output = loss_of(policy, batch, algorithm, TEMPERATURE)
        return output.entropy / output.tokens

    step = 1e-6
    for index in range(found.numel()):
        entry = policy.table.data[1].view(-1)[index : index + 1]
        entry += step
        above = mean_entropy()
        entry -= 2 * step
        below = mean_entropy()
        entry += step
        slope = (above - below) / (2 * step)
        assert found.view(-1)[index].item() == pytest.approx(-0.3 * slope, abs=1e-8)


@pytest.mark.parametrize("shares_prompts", [True, False])
def test_the_entropy_of_a_language_model_has_the_gradient_of_its_logits(
    shares_prompts: bool,
) -> None:
    policy = exact_policy("llama", shares_prompts=shares_prompts)
    batch = ragged_batch(torch.float64)
    policy.score(batch, TEMPERATURE, entropy_gradient=True).entropy.sum().backward()
    found = gradients(policy)
    policy.module.zero_grad()
    logits = separate_logits(policy.module, batch) / TEMPERATURE
    (-(logits.softmax(-1) * logits.log_softmax(-1)).sum()).backward()
    assert relative_difference(found, gradients(policy)) < 1e-10


def test_an_impossible_token_leaves_the_gradient_of_the_entropy_finite() -> None:
    logits = torch.tensor([[0.0, 1.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    logprobs.entropy(logits, 0.7).sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 2] == 0
    assert logits.grad[0, 0] == pytest.approx(-logits.grad[0, 1].item())


# Divergence


def expected_gradient(name: str, new: Tensor, old: Tensor, reference: Tensor) -> Tensor:
    """Of a divergence as a loss of one token, over all tokens that the old policy may draw."""
    logits = new.clone().requires_grad_()
    rows = [each.log_softmax(-1).unsqueeze(1) for each in (logits, old, reference)]
    mask = torch.ones(len(new), 1, dtype=torch.bool)
    per_token = getattr(kl, name)(*rows, mask)
    (per_token * rows[1].exp().detach()).sum().backward()
    assert logits.grad is not None
    return logits.grad


NEW = torch.tensor([0.3, -0.5, 1.1], dtype=torch.float64)
OLD = torch.tensor([0.1, 0.4, -0.2], dtype=torch.float64)
REFERENCE = torch.tensor([-0.6, 0.2, 0.5], dtype=torch.float64)


def reverse(new: Tensor) -> Tensor:
    """The gradient of KL(policy || reference) by the logits."""
    ours, distance = new.softmax(-1), new.log_softmax(-1) - REFERENCE.log_softmax(-1)
    return ours * (distance - (ours * distance).sum())


@pytest.mark.parametrize("name", ["k2", "k3_value_k2_gradient", "ratio_k1", "ratio_k3"])
def test_a_divergence_in_the_loss_descends_the_reverse_divergence(name: str) -> None:
    found = expected_gradient(name, NEW, NEW, REFERENCE)
    assert torch.allclose(found, reverse(NEW), atol=1e-12)


@pytest.mark.parametrize("name", ["ratio_k1", "ratio_k3"])
def test_a_divergence_with_a_ratio_does_so_for_samples_of_the_old_policy(name: str) -> None:
    found = expected_gradient(name, NEW, OLD, REFERENCE)
    assert torch.allclose(found, reverse(NEW), atol=1e-12)


def test_k3_in_the_loss_descends_the_forward_divergence() -> None:
    found = expected_gradient("k3", NEW, NEW, REFERENCE)
    assert torch.allclose(found, NEW.softmax(-1) - REFERENCE.softmax(-1), atol=1e-12)


def test_k1_in_the_loss_descends_nothing() -> None:
    assert torch.allclose(
        expected_gradient("k1", NEW, NEW, REFERENCE), torch.zeros(3).double(), atol=1e-12
    )


@pytest.mark.parametrize("name", DIVERGENCES)
def test_every_divergence_that_a_configuration_accepts_reaches_the_gradient(name: str) -> None:
    policy = make_table()
    plain = gradient(policy, batch_by(policy, make_algorithm("grpo")), make_algorithm("grpo"))
    algorithm = make_algorithm("grpo", kl=name, kl_beta=0.5)
    batch = batch_by(policy, algorithm, reference=moved(policy))
    assert not torch.allclose(gradient(policy, batch, algorithm), plain)


def test_groups_without_signal_are_held_to_the_reference_too() -> None:
    policy = make_table()
    algorithm = make_algorithm("grpo", kl="ratio_k3", kl_beta=0.5)
    batch = batch_by(policy, algorithm, [DEAD], reference=moved(policy))
    assert [part.lengths.tolist() for part in cut(batch, 100)] == [[2, 4]]
    assert gradient(policy, batch, algorithm)[1].abs().max() > 1e-3


# Another sampling policy, and several updates


@pytest.mark.parametrize("name", CORRECTIONS)
def test_every_correction_that_a_configuration_accepts_reaches_the_gradient(name: str) -> None:
    policy = make_table()
    plain = gradient(policy, batch_by(policy, make_algorithm("grpo")), make_algorithm("grpo"))
    algorithm = make_algorithm("grpo", correction=name)
    found = gradient(policy, batch_by(policy, algorithm), algorithm)
    assert not torch.allclose(found, plain)


def test_the_correction_stays_that_of_the_policy_before_the_first_update() -> None:
    policy = make_table()
    algorithm = make_algorithm("grpo", correction="token_truncated", correction_cap=2.0)
    batch = batch_by(policy, algorithm)
    old = policy.score(batch, TEMPERATURE).log_probs.detach()
    later = moved(policy)
    new = later.score(batch, TEMPERATURE).log_probs.detach()
    per_token = algorithm.loss(new, old, batch.advantages, batch.mask)
    weight = (old - batch.sampling_log_probs).exp().clamp(max=2.0)
    wanted = float((batch.weights * weight * per_token).sum())
    assert loss_of(later, batch, algorithm, TEMPERATURE).loss.item() == pytest.approx(wanted)


def test_product_and_geometric_mean_of_a_row_are_two_corrections() -> None:
    old = torch.full((1, 2), 0.1, dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)
    none = torch.zeros_like(old)
    bounds = {"low": math.exp(0.05), "high": math.exp(0.15)}
    product = corrections.sequence_truncated(old, none, mask)
    assert product.tolist() == [[pytest.approx(math.exp(0.2))] * 2]
    assert corrections.sequence_masked(old, none, mask, **bounds).tolist() == [[0, 0]]
    geometric = corrections.geometric_masked(old, none, mask, **bounds)
    assert geometric.tolist() == [[pytest.approx(math.exp(0.1))] * 2]


def test_the_mismatch_is_measured_before_anything_is_truncated() -> None:
    policy = make_table()
    algorithm = make_algorithm("grpo", correction="token_truncated", correction_cap=2.0)
    batch = batch_by(policy, algorithm)
    far = replace(batch, sampling_log_probs=policy.score(batch, TEMPERATURE).log_probs.detach() - 3)
    output = loss_of(policy, far, algorithm, TEMPERATURE)
    assert output.mismatch == pytest.approx(3 * output.tokens)
    assert output.largest_mismatch == pytest.approx(3)


@pytest.mark.parametrize("parts", [{"minibatches": 2}, {"epochs": 2}])
def test_every_update_on_a_batch_has_the_log_probs_of_before_the_first(
    parts: dict[str, int],
) -> None:
    policy = make_table()
    algorithm = make_algorithm("grpo", **parts)
    batch = batch_by(policy, algorithm)
    before = policy.score(batch, TEMPERATURE).log_probs.detach()
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=0.5)
    done = update(
        policy, batch, algorithm, optimizer, temperature=TEMPERATURE, clip_norm=1.0,
        token_budget=100,
    )  # fmt: skip
    assert done is not None
    assert batch.old_log_probs is not None
    assert torch.equal(batch.old_log_probs, before)
    ratios = (policy.score(batch, TEMPERATURE).log_probs - batch.old_log_probs).exp()
    assert (ratios - 1).abs().max() > 1e-3


def test_a_step_makes_as_many_updates_as_epochs_times_minibatches(tmp_path: Path) -> None:
    algorithm = {"preset": "reinforce_pp", "epochs": 2, "minibatches": 3}
    config = {
        "task": {"name": "toy", "held_out": 0.0},
        "model": "tabular",
        "algorithm": algorithm,
        "run": {"steps": 2, "threads": 1, "folder": str(tmp_path / "run")},
        "sampling": {"problems": 4, "max_new_tokens": 1},
        "evaluation": {"problems": 0},
    }
    verigrad.train(config, quiet=True)
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert [line["optimizer/updates"] for line in lines] == [6, 12]


@pytest.mark.parametrize("budget", [1, 4, 100])
def test_log_probs_of_before_the_first_update_do_not_depend_on_the_passes(budget: int) -> None:
    policy, reference = make_table(), make_table(seed=1)
    algorithm = make_algorithm("grpo", kl="ratio_k3", kl_beta=0.1, minibatches=2)
    batch = make_batch(
        [LIVE, DEAD], algorithm, measure=measured_by(policy, reference, budget=budget),
        dtype=torch.float64,
    )  # fmt: skip
    assert batch is not None
    assert batch.old_log_probs is not None
    assert batch.reference_log_probs is not None
    for found, scorer in ((batch.old_log_probs, policy), (batch.reference_log_probs, reference)):
        assert torch.equal(found, scorer.score(batch, TEMPERATURE).log_probs)


# Combinations


@pytest.mark.parametrize("loss", ["gspo", "gmpo", "luspo"])
@pytest.mark.parametrize("rule", ["token_mean", "const_norm", "group_token_mean"])
def test_a_loss_per_sequence_with_a_weight_by_length_is_refused(loss: str, rule: str) -> None:
    with pytest.raises(ConfigError, match="seq_mean_token_mean"):
        make_algorithm("grpo", loss=loss, aggregation=rule)
