"""The gradient of a step does not depend on how the step is laid out or cut: one objective.

The objectives are made from the tables of a configuration: every advantage, loss and aggregation
that are allowed together; every divergence with each of them that it goes together with (it is a
term of its own, so pairs come first, and all of them in a thorough test); and every other part
crossed with a sample. Each goes the way
of a run: groups, what is measured on their tokens, batch, passes, backward.
"""

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from math import inf, nan
from typing import Any

import pytest
import torch
from builders import (
    STOP,
    Rows,
    assert_same_gradient,
    gradient_of,
    make_group,
    make_table,
    reward_for,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives import (
    CROSSED,
    ENTROPY_COEFFICIENT,
    EVERYTHING,
    MATRIX,
    NOT_SHAPED,
    PARTS,
    name_of,
    objective,
    usable,
)
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch, Measured, Tokens, make_batch
from verigrad.config.algorithm import (
    ADVANTAGES,
    AGGREGATIONS,
    DIVERGENCES,
    LOSSES,
)
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.step import accumulate, loss_of, measure
from verigrad.types import Group

TEMPERATURE = 0.7

STEP: list[Rows] = [
    [((1, 2, 3, 4), 1.0), ((), 0.0), ((2, 0), 0.25), ((4, 4, 0), None), ((1, 0), -0.5)],
    [((3, 1, 0), 0.0), ((2, 2, 2, 1), 0.25), ((1, 0), 1.0)],
    [((3, 0), 0.1), ((4, 0), 0.1), ((0,), 0.1)],
    [((1,), -2.0), ((2, 3, 3, 0), 0.5), ((3, 0), 0.75), ((4, 1, 2, 0), -0.5)],
]
"""Groups of unequal size: an empty completion, a failed verdict, completions that were cut off and
a group without signal are among them."""


def groups_of(step: Sequence[Rows], advantage: str) -> list[Group]:
    """The groups of some rows; each reward has two named parts, which only some estimators see."""

    def parted(group: Group) -> Group:
        rollouts = []
        for one in group.rollouts:
            reward = one.verdict.reward
            if reward is not None:
                components = {"reward": reward, "brevity": 1 / (1 + len(one.completion.token_ids))}
                verdict = replace(
                    one.verdict, components=components, weights={"reward": 1.0, "brevity": 0.25}
                )
                one = replace(one, verdict=verdict)
            rollouts.append(one)
        return replace(group, rollouts=tuple(rollouts))

    rewarded = [
        [(ids, None if r is None else reward_for(advantage, r)) for ids, r in rows] for rows in step
    ]
    return [parted(make_group(row, rows)) for row, rows in enumerate(rewarded)]


def nearby(policy: TabularPolicy, seed: int) -> TabularPolicy:
    """Another policy, close enough that some ratios are clipped and some are not."""
    other = make_table(problems=4, positions=8, seed=seed)
    other.table.data.mul_(0.3).add_(0.7 * policy.table.detach())
    return other


POLICY = make_table(problems=4, positions=8)
OLDER, REFERENCE = nearby(POLICY, 1), nearby(POLICY, 2)


def batch_from(groups: Sequence[Group], algorithm: Algorithm, token_budget: int = 7) -> Batch:
    """The batch of a step that was measured in passes, by other policies than the trained one."""
    reference = REFERENCE if algorithm.divergence is not None else None

    def measured(tokens: Tokens) -> Measured:
        return measure(OLDER, reference, tokens, temperature=TEMPERATURE, token_budget=token_budget)

    batch = make_batch(groups, algorithm, measure=measured, dtype=torch.float64)
    assert batch is not None
    return batch


def gradient(batch: Batch, algorithm: Algorithm, token_budget: int = 10**9) -> Tensor:
    return gradient_of(
        POLICY,
        batch,
        algorithm,
        token_budget=token_budget,
        entropy_coefficient=ENTROPY_COEFFICIENT,
    ).clone()


def shuffled(groups: Sequence[Group], seed: int) -> list[Group]:
    """The same step with its groups, and the rollouts of each, in another order."""
    order = random.Random(seed)
    mixed = [replace(g, rollouts=tuple(order.sample(g.rollouts, len(g.rollouts)))) for g in groups]
    return order.sample(mixed, len(mixed))


GARBAGE = {"token_ids": 3, "sampling_log_probs": nan, "old_log_probs": -inf}
"""What may stand behind a row's end; the reference's log-probs too. Weights are 0 there."""


def padded(batch: Batch, columns: int) -> Batch:
    """The batch with more columns, and garbage wherever a row has no token that trains."""
    mask = torch.nn.functional.pad(batch.mask, (0, columns))
    wide: dict[str, Any] = {"mask": mask}
    for field in fields(Batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor) and value.dim() == 2 and field.name != "mask":
            garbage = inf if field.name == "reference_log_probs" else GARBAGE.get(field.name, 0)
            more = torch.nn.functional.pad(value, (0, columns))
            wide[field.name] = torch.where(mask, more, torch.full_like(more, garbage))
    return replace(batch, **wide)


def assert_invariant(parts: dict[str, Any]) -> None:
    """Hold the gradient of one objective on the step above to that of any other layout of it."""
    algorithm = objective(parts)
    groups = groups_of(STEP, parts["advantage"])
    batch = batch_from(groups, algorithm)
    expected = gradient(batch, algorithm)
    assert expected.any(), parts
    assert_same_gradient(gradient(batch, algorithm, token_budget=1), expected)
    assert_same_gradient(gradient(batch_from(shuffled(groups, 1), algorithm), algorithm), expected)
    wide = padded(batch, 3)
    assert_same_gradient(gradient(wide, algorithm, 9), expected)
    whole = loss_of(POLICY, wide, algorithm, TEMPERATURE, ENTROPY_COEFFICIENT).loss
    assert_same_gradient(torch.autograd.grad(whole, POLICY.table)[0], expected)


def test_the_matrix_holds_every_objective_that_a_configuration_can_name() -> None:
    assert {parts["advantage"] for parts in MATRIX} == set(ADVANTAGES)
    assert len(MATRIX) == len({name_of(parts) for parts in MATRIX}) == 14 * (9 * 6 + 3 * 2)
    for parts in [*PARTS, EVERYTHING]:
        assert any(parts.items() <= one.items() for one in CROSSED), parts
    for kl in DIVERGENCES:
        met = [one for one in CROSSED if one.get("kl") == kl]
        assert {one["loss"] for one in met} == set(LOSSES)
        assert {one["aggregation"] for one in met} == set(AGGREGATIONS)
        left_out = set(ADVANTAGES) - {one["advantage"] for one in met}
        assert left_out == (set(NOT_SHAPED) if kl == "k1_in_reward" else set())


@pytest.mark.parametrize("parts", MATRIX, ids=name_of)
def test_every_objective_is_the_same_however_its_step_is_laid_out_and_cut(
    parts: dict[str, Any],
) -> None:
    assert_invariant(parts)


@pytest.mark.parametrize("parts", CROSSED, ids=name_of)
def test_every_other_part_is_the_same_too(parts: dict[str, Any]) -> None:
    assert_invariant(parts)


@pytest.mark.thorough
@pytest.mark.parametrize("advantage", ADVANTAGES)
@pytest.mark.parametrize("kl", DIVERGENCES)
def test_every_divergence_with_every_objective_is_the_same_too(kl: str, advantage: str) -> None:
    objectives = [
        parts for parts in usable({"kl": kl, "kl_beta": 0.1}) if parts["advantage"] == advantage
    ]
    assert bool(objectives) != (kl == "k1_in_reward" and advantage in NOT_SHAPED)
    for parts in objectives:
        assert_invariant(parts)


TOKENS = st.builds(
    lambda chosen, stop: (*chosen, *stop),
    st.lists(st.integers(1, 4), max_size=3),
    st.sampled_from([(), (STOP,)]),
)
REWARD = st.sampled_from([None, 0.0, 1.0, 0.1, -2.0])
ANY_STEP = st.lists(
    st.lists(st.tuples(TOKENS, REWARD), min_size=1, max_size=5), min_size=1, max_size=3
)
"""The rows of up to three groups of up to five completions of up to four tokens, some failed."""

ANY_OBJECTIVE = st.sampled_from([one | {"pass_k": 1} for one in [*MATRIX, *CROSSED]])


@settings(max_examples=150)
@given(
    parts=ANY_OBJECTIVE,
    step=ANY_STEP,
    token_budget=st.integers(1, 25),
    columns=st.integers(0, 4),
    seed=st.integers(0, 99),
)
def test_any_step_may_be_laid_out_and_cut_in_any_way(
    parts: dict[str, Any], step: list[Rows], token_budget: int, columns: int, seed: int
) -> None:
    algorithm = objective(parts)
    # With one scored rollout at least, so that there is a batch.
    groups = groups_of([[*step[0], ((1, 2, 0), 1.0), ((2, 0), 0.0)], *step[1:]], parts["advantage"])
    expected = gradient(batch_from(groups, algorithm), algorithm)
    mixed = padded(batch_from(shuffled(groups, seed), algorithm, token_budget), columns)
    assert_same_gradient(gradient(mixed, algorithm, token_budget), expected)


@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_a_step_in_which_every_completion_is_wrong_trains_nothing(advantage: str) -> None:
    groups = [make_group(0, [((1, 0), 0.0), ((), 0.0)]), make_group(1, [((2,), 0.0), ((0,), 0.0)])]
    for parts in MATRIX:
        if parts["advantage"] == advantage:
            algorithm = objective(parts)
            batch = batch_from(groups, algorithm)
            assert not batch.row_trains().any()
            assert accumulate(POLICY, batch, algorithm, temperature=1.0, token_budget=5) is None


@pytest.mark.parametrize("parts", [*MATRIX[::40], *CROSSED], ids=name_of)
def test_a_step_of_empty_completions_trains_nothing(parts: dict[str, Any]) -> None:
    algorithm = objective(parts)
    batch = batch_from([make_group(0, [((), 0.0), ((), 1.0)])], algorithm)
    assert accumulate(POLICY, batch, algorithm, temperature=1.0, token_budget=5) is None
    # Nor does it break the whole: a loss of 0 that a backward pass can go through.
    output = loss_of(POLICY, batch, algorithm, 1.0, ENTROPY_COEFFICIENT)
    (nothing,) = torch.autograd.grad(output.loss, POLICY.table)
    assert output.loss.item() == 0
    assert not nothing.any()


@pytest.mark.parametrize("token_budget", [1, 8, 17])
@pytest.mark.parametrize("parts", CROSSED[::7], ids=name_of)
def test_the_diagnostics_of_the_passes_add_up_to_those_of_the_whole(
    parts: dict[str, Any], token_budget: int
) -> None:
    algorithm = objective(parts)
    batch = batch_from(groups_of(STEP, parts["advantage"]), algorithm)
    whole, cut = (
        accumulate(
            POLICY,
            batch,
            algorithm,
            temperature=TEMPERATURE,
            token_budget=budget,
            entropy_coefficient=ENTROPY_COEFFICIENT,
        )
        for budget in (10**9, token_budget)
    )
    assert whole is not None
    assert cut is not None
    assert (cut[0].tokens, cut[0].clipped) == (whole[0].tokens, whole[0].clipped)
    assert cut[0].loss.item() == pytest.approx(whole[0].loss.item(), abs=1e-12)
    assert cut[0].entropy == pytest.approx(whole[0].entropy, abs=1e-12)
    assert cut[0].mismatch == pytest.approx(whole[0].mismatch, abs=1e-12)
    assert cut[0].largest_mismatch == whole[0].largest_mismatch
    assert (cut[0].kl is None) == (whole[0].kl is None) == (algorithm.divergence is None)
    if whole[0].kl is not None:
        assert cut[0].kl == pytest.approx(whole[0].kl, abs=1e-12)
