"""The gradient of a language model's batch: the same however it is cut, stop tokens included."""

import itertools
from dataclasses import replace
from functools import cache

import pytest
import torch
from builders import cut
from hypothesis import given, settings
from hypothesis import strategies as st
from ragged import (
    completion_of,
    gradients,
    group_of,
    preset,
    prompts_of,
    ragged_batch,
    ragged_groups,
    relative_difference,
    update_once,
)
from tiny import exact_policy, tiny_policy
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch, make_batch, select_rows
from verigrad.policies.causal_lm import CausalLM
from verigrad.training.step import Update, accumulate, loss_of
from verigrad.types import Group

# One objective, however it is cut


def gradient(
    policy: CausalLM, batch: Batch, algorithm: Algorithm, budget: int
) -> dict[str, Tensor]:
    policy.module.zero_grad()
    done = accumulate(policy, batch, algorithm, temperature=0.9, token_budget=budget)
    assert done is not None
    return gradients(policy)


cached_policy = cache(exact_policy)

ALGORITHMS = {
    "grpo": preset("grpo"),
    "dr_grpo": preset("dr_grpo"),
    "rloo": preset("rloo"),
    "token mean": preset("grpo", aggregation="token_mean"),
    "group mean": preset("grpo", aggregation="group_token_mean"),
}


def batch_of(groups: list[Group], algorithm: Algorithm, *, first_update: bool) -> Batch:
    """The batch, and where it is not the first update on it, an older policy's log-probs."""
    batch = make_batch(groups, algorithm, dtype=torch.float64)
    assert batch is not None
    if first_update:
        return batch
    # About -4, like those of a policy that knows little of 64 tokens: some ratios are clipped.
    return replace(batch, old_log_probs=torch.where(batch.mask, -4.0, 0.0).double())


@settings(max_examples=30)
@given(
    kind=st.sampled_from(["llama", "gpt2"]),
    name=st.sampled_from(sorted(ALGORITHMS)),
    order=st.permutations([0, 1, 2]),
    budget=st.one_of(st.just(1), st.integers(2, 50)),
    first_update=st.booleans(),
)
def test_a_gradient_does_not_depend_on_passes_or_on_the_order_of_groups(
    kind, name, order, budget, first_update
):
    policy, algorithm, groups = cached_policy(kind), ALGORITHMS[name], ragged_groups()
    whole = batch_of(groups, algorithm, first_update=first_update)
    parts = batch_of([groups[i] for i in order], algorithm, first_update=first_update)
    wanted = gradient(policy, whole, algorithm, 10**9)
    found = gradient(policy, parts, algorithm, budget)
    assert relative_difference(found, wanted) < 1e-12


@settings(max_examples=20)
@given(kind=st.sampled_from(["llama", "gpt2"]), order=st.permutations(range(9)), data=st.data())
def test_a_gradient_does_not_depend_on_which_rows_are_scored_together(kind, order, data):
    ends = data.draw(st.lists(st.integers(1, 8), unique=True).map(sorted))
    policy, algorithm = cached_policy(kind), preset("grpo")
    batch = ragged_batch(torch.float64)
    wanted = gradient(policy, batch, algorithm, 10**9)
    policy.module.zero_grad()
    for first, last in itertools.pairwise([0, *ends, 9]):
        rows = select_rows(batch, order[first:last])
        loss_of(policy, rows, algorithm, 0.9).loss.backward()
    assert relative_difference(gradients(policy), wanted) < 1e-12


def test_the_budgets_above_range_from_one_row_in_a_pass_to_all_of_them():
    sizes = {
        budget: [len(p.lengths) for p in cut(ragged_batch(), budget)] for budget in (1, 20, 50)
    }
    assert sizes == {1: [1] * 9, 20: [3, 2, 2, 2], 50: [9]}


# The stop token


def test_the_stop_token_is_trained_and_padding_is_not():
    """Token 0 both stops and pads. Advantages are 1/2, -1/2 and 0, and weights 1/3."""
    policy, algorithm = tiny_policy(), preset("dr_grpo", aggregation="seq_mean_token_sum")
    first, second = prompts_of(2, 4)
    groups = [
        group_of(first, [completion_of([6, 0]), completion_of([0])], [1.0, 0.0]),
        group_of(second, [completion_of([6, 9, 9])], [1.0]),
    ]
    batch = make_batch(groups, algorithm)
    scores = policy.score(batch, 1.0)
    per_token = algorithm.loss(
        scores.log_probs, scores.log_probs.detach(), batch.advantages, batch.mask
    )
    (found,) = torch.autograd.grad((batch.weights * per_token).sum(), scores.log_probs)
    sixth = 1 / 6
    assert found[0].tolist() == pytest.approx([-sixth, -sixth, 0.0])
    assert found[1].tolist() == pytest.approx([sixth, 0.0, 0.0])
    assert found[2].tolist() == [0.0, 0.0, 0.0]


def test_a_rewarded_stop_becomes_likelier():
    policy = tiny_policy()
    (prompt,) = prompts_of(4)
    rows = [completion_of([6, 0]), completion_of([6, 9])]
    batch = make_batch([group_of(prompt, rows, [1.0, 0.0])], preset("grpo"))
    before = policy.score(batch, 1.0).log_probs.detach()
    assert isinstance(update_once(policy, batch, learning_rate=0.1), Update)
    after = policy.score(batch, 1.0).log_probs.detach()
    assert after[0, 1] > before[0, 1] + 1e-3
    assert after[1, 1] < before[1, 1] - 1e-3
