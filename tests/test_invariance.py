"""The gradient of a step does not depend on how the step is laid out or cut: one objective."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf, nan
from typing import Any

import pytest
import torch
from builders import (
    STOP,
    Rows,
    assert_same_gradient,
    batch_of,
    gradient_of,
    make_algorithm,
    make_group,
    make_table,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from verigrad.batch import Batch
from verigrad.config.schema import ADVANTAGES, AGGREGATIONS, LOSSES
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.step import accumulate, loss_of
from verigrad.types import Group

EVERY_OBJECTIVE = pytest.mark.parametrize(
    ("advantage", "loss", "aggregation"), list(product(ADVANTAGES, LOSSES, AGGREGATIONS))
)
"""Every combination that a configuration can name; a new member is covered the day it is added."""

TOKENS = st.builds(
    lambda chosen, stop: (*chosen, *stop),
    st.lists(st.integers(1, 4), max_size=3),
    st.sampled_from([(), (STOP,)]),
)
REWARD = st.sampled_from([None, 0.0, 1.0, 0.1, -2.0])
STEP = st.lists(st.lists(st.tuples(TOKENS, REWARD), min_size=1, max_size=5), min_size=1, max_size=3)
"""The rows of up to three groups of up to five completions of up to four tokens, some failed."""


def groups_of(step: list[Rows]) -> list[Group]:
    """The groups of some rows, with one scored rollout at least, so that there is a batch."""
    step[0].append(((1, 2, 0), 0.5))
    return [make_group(row, rows) for row, rows in enumerate(step)]


def off_policy(policy: TabularPolicy, batch: Batch, temperature: float) -> Batch:
    """The batch with the log-probs of a nearby older policy, so that some ratios are clipped."""
    older = make_table(positions=8, seed=1)
    older.table.data.mul_(0.3).add_(0.7 * policy.table.detach())
    return replace(batch, old_log_probs=older.score(batch, temperature).log_probs.detach())


def padded(batch: Batch, columns: int) -> Batch:
    """The batch with more columns, and garbage wherever a row has ended."""

    def widen(values: Tensor, garbage: float) -> Tensor:
        more = torch.nn.functional.pad(values, (0, columns))
        return torch.where(mask, more, torch.full_like(more, garbage))

    assert batch.old_log_probs is not None
    mask = torch.nn.functional.pad(batch.mask, (0, columns))
    return replace(
        batch,
        token_ids=widen(batch.token_ids, 3),
        mask=mask,
        sampling_log_probs=widen(batch.sampling_log_probs, nan),
        old_log_probs=widen(batch.old_log_probs, -inf),
        advantages=widen(batch.advantages, 0),
        weights=widen(batch.weights, 0),
    )


@EVERY_OBJECTIVE
@settings(max_examples=10)
@given(step=STEP, token_budget=st.integers(1, 25))
def test_the_gradient_does_not_depend_on_the_token_budget(
    advantage: str, loss: str, aggregation: str, step: list[Rows], token_budget: int
) -> None:
    algorithm = make_algorithm(advantage=advantage, loss=loss, aggregation=aggregation)
    policy = make_table(positions=8)
    batch = off_policy(policy, batch_of(groups_of(step), algorithm), 0.7)
    expected = gradient_of(policy, batch, algorithm).clone()
    assert_same_gradient(gradient_of(policy, batch, algorithm, token_budget=token_budget), expected)


@EVERY_OBJECTIVE
@settings(max_examples=10)
@given(step=STEP, random=st.randoms(use_true_random=False))
def test_the_gradient_does_not_depend_on_the_order_of_groups_and_rows(
    advantage: str, loss: str, aggregation: str, step: list[Rows], random: Any
) -> None:
    algorithm = make_algorithm(advantage=advantage, loss=loss, aggregation=aggregation)
    policy = make_table(positions=8)
    groups = groups_of(step)
    batch = off_policy(policy, batch_of(groups, algorithm), 0.7)
    expected = gradient_of(policy, batch, algorithm).clone()

    def shuffled(items: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(random.sample(items, len(items)))

    mixed = [replace(group, rollouts=shuffled(group.rollouts)) for group in shuffled(groups)]
    batch = off_policy(policy, batch_of(mixed, algorithm), 0.7)
    assert_same_gradient(gradient_of(policy, batch, algorithm), expected)


@EVERY_OBJECTIVE
@settings(max_examples=10)
@given(step=STEP, columns=st.integers(0, 4), token_budget=st.integers(1, 25))
def test_the_gradient_does_not_depend_on_padding(
    advantage: str, loss: str, aggregation: str, step: list[Rows], columns: int, token_budget: int
) -> None:
    algorithm = make_algorithm(advantage=advantage, loss=loss, aggregation=aggregation)
    policy = make_table(positions=8)
    batch = off_policy(policy, batch_of(groups_of(step), algorithm), 0.7)
    expected = gradient_of(policy, batch, algorithm).clone()
    wide = padded(batch, columns)
    assert_same_gradient(gradient_of(policy, wide, algorithm, token_budget=token_budget), expected)
    whole = loss_of(policy, wide, algorithm, 0.7).loss
    assert_same_gradient(torch.autograd.grad(whole, policy.table)[0], expected)


@given(step=STEP, token_budget=st.integers(1, 25))
def test_the_diagnostics_of_the_passes_add_up_to_those_of_the_whole(
    step: list[Rows], token_budget: int
) -> None:
    algorithm, policy = make_algorithm(), make_table(positions=8)
    batch = off_policy(policy, batch_of(groups_of(step), algorithm), 0.7)
    whole, cut = (
        accumulate(policy, batch, algorithm, temperature=0.7, token_budget=budget)
        for budget in (10**9, token_budget)
    )
    assert (whole is None) == (cut is None)
    if whole is None or cut is None:
        return
    assert cut[0].loss.item() == pytest.approx(whole[0].loss.item(), abs=1e-12)
    assert (cut[0].tokens, cut[0].clipped) == (whole[0].tokens, whole[0].clipped)
    assert cut[0].entropy == pytest.approx(whole[0].entropy, abs=1e-12)
    assert cut[0].mismatch == pytest.approx(whole[0].mismatch, abs=1e-12)
    assert cut[0].largest_mismatch == whole[0].largest_mismatch
