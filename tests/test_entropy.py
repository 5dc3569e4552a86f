"""The entropy of the policy as a bonus, and as what chooses the tokens that train."""

import json
import math
from math import inf

import pytest
import torch
from builders import Rows, batch_of, gradient_of, make_algorithm, make_table
from ragged import gradients, ragged_batch, relative_difference
from running import read_jsonl
from steps import DEAD, LIVE, STEP, TEMPERATURE, batch_by, groups_of, run_of
from tiny import exact_policy
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch
from verigrad.core import logprobs
from verigrad.policies.causal_lm import separate_logits
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.checkpoint import checkpoints
from verigrad.training.step import accumulate, loss_of, update


def bonus_of(policy: TabularPolicy, coefficient: float) -> tuple[Batch, Algorithm]:
    algorithm = make_algorithm(entropy_coefficient=coefficient, aggregation="seq_mean_token_sum")
    equal: list[Rows] = [[(ids, 1.0) for ids, _ in rows] for rows in STEP]
    return batch_of(groups_of(equal), algorithm), algorithm


def test_the_gradient_of_the_entropy_bonus_is_that_of_finite_differences() -> None:
    """A mean over tokens whatever the aggregation; one answer has a logit of minus infinity."""
    policy = make_table()
    policy.table.data[0, 0, 3] = -inf
    batch, algorithm = bonus_of(policy, 0.3)
    actual = gradient_of(policy, batch, algorithm, entropy_coefficient=0.3).clone()
    assert actual[0, 0, 3] == 0
    assert actual.isfinite().all()

    def loss(table: Tensor) -> float:
        log_probs = (table / 0.7).log_softmax(dim=-1)
        entropy = -torch.where(log_probs > -inf, log_probs.exp() * log_probs, 0.0).sum(dim=-1)
        rows = torch.tensor([prompt.token_ids[0] for prompt in batch.prompts])[batch.group_index]
        return -0.3 * (entropy[rows] * batch.mask).sum().item() / 27

    for place in [(0, 0, 1), (0, 0, 4), (0, 3, 2), (1, 2, 0), (2, 1, 3)]:
        ends = []
        for shift in (1e-5, -1e-5):
            table = policy.table.detach().clone()
            table[place] += shift
            ends.append(loss(table))
        assert actual[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-9)


def test_the_entropy_bonus_has_the_gradient_of_the_mean_entropy() -> None:
    algorithm = make_algorithm("grpo", entropy_coefficient=0.3)
    policy = make_table(problems=2, answers=3)
    batch = batch_by(policy, algorithm, [DEAD])
    found = gradient_of(policy, batch, algorithm, entropy_coefficient=0.3)[1]

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


def test_the_entropy_bonus_makes_the_policy_less_sure() -> None:
    policy = make_table()
    batch, algorithm = bonus_of(policy, 0.3)
    before = loss_of(policy, batch, algorithm, 0.7).entropy
    optimizer = torch.optim.SGD(policy.module.parameters(), lr=1.0)
    update(
        policy,
        batch,
        algorithm,
        optimizer,
        temperature=0.7,
        clip_norm=inf,
        token_budget=9,
        entropy_coefficient=0.3,
    )
    assert loss_of(policy, batch, algorithm, 0.7).entropy > before


def test_a_bonus_steered_down_to_nothing_trains_nothing() -> None:
    """Otherwise a gradient of zero would move the weights through the optimiser's momentum."""
    policy = make_table()
    batch, algorithm = bonus_of(policy, 0.3)
    assert accumulate(policy, batch, algorithm, temperature=0.7, token_budget=9) is None


@pytest.mark.parametrize(
    ("target", "expected"),
    [("2.31", [0.01, 0.03, 0.05, 0.07]), ("0.0", [0.01, 0.0, 0.0, 0.0])],
    ids=["above what is possible", "below everything"],
)
def test_the_weight_of_the_bonus_is_steered_towards_its_target(
    tmp_path, target: str, expected: list[float]
) -> None:
    _, state, trainer = run_of(
        tmp_path / "run",
        *("algorithm.entropy_coefficient", "0.01"),
        *("algorithm.entropy_target", target),
        *("algorithm.entropy_step", "0.02"),
        *("run.steps", "4"),
    )
    trainer.run()
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert [line["optimizer/entropy_coefficient"] for line in lines] == pytest.approx(expected)
    saved = json.loads(
        (checkpoints(tmp_path / "run" / "checkpoints")[-1] / "state.json").read_text()
    )
    assert saved["entropy_coefficient"] == state.entropy_coefficient


@pytest.mark.parametrize(("target", "expected"), [("2.0", 0.05), ("0.0", 0.0)])
def test_a_bonus_of_nothing_grows_where_a_policy_that_is_sure_trains_nothing(
    tmp_path, target: str, expected: float
) -> None:
    """Its completions are all alike, so that no group ever has a signal."""
    setup, state, trainer = run_of(
        tmp_path / "run",
        *("algorithm.entropy_target", target),
        *("algorithm.entropy_step", "0.05"),
        *("run.steps", "1"),
    )
    table = setup.policy.module.table
    table.data.zero_()[..., 3] = 50.0
    trainer.run()
    (line,) = read_jsonl(tmp_path / "run" / "metrics.jsonl")[-1:]
    assert (line["groups/with_signal"], line["optimizer/updates"]) == (0, 0)
    assert state.entropy_coefficient == expected


def test_the_least_sure_tokens_alone_have_a_policy_loss_and_the_denominator_stays() -> None:
    policy = make_table()
    plain = batch_by(policy, make_algorithm(aggregation="token_mean"))
    algorithm = make_algorithm(aggregation="token_mean", top_entropy=0.3)
    masked = batch_by(policy, algorithm)
    entropy = policy.score(masked, 0.7).entropy
    chosen = masked.weights != 0
    # At least 0.3 of 27 tokens; those of one position of a problem are alike.
    assert 8 <= int(chosen.sum()) < 27
    assert entropy[chosen].min() > entropy[masked.mask & ~chosen].max()
    assert torch.equal(masked.weights[chosen], plain.weights[chosen])
    assert masked.weights[0, chosen[0]].tolist() == [1 / 27] * int(chosen[0].sum())


def test_tokens_that_are_left_out_of_the_policy_loss_stay_in_the_denominator() -> None:
    algorithm = make_algorithm("grpo", aggregation="token_mean", top_entropy=0.4)
    batch = batch_by(make_table(), algorithm, [LIVE])
    assert sorted(batch.weights[batch.mask].tolist()) == pytest.approx([0, 0, 0, 1 / 5, 1 / 5])
