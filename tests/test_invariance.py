"""The gradient of a step does not depend on how the step is laid out or cut: one objective.

The objectives are made from the tables of a configuration: every advantage, loss and aggregation
that are allowed together; every divergence with each of them that it goes together with (it is a
term of its own); and every other part crossed with a sample. Objectives in which any two members
meet come first, and all of them in thorough tests. Each goes the way of a run: groups, what is
measured on their tokens, batch, passes, backward.
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
    PAIRED,
    PARTS,
    name_of,
    objective,
    together,
    usable,
)
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch, LossOutput, Measured, Tokens, make_batch
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

EVERY_CROSSED = [parts for some in CROSSED.values() for parts in some]

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


def assert_invariant(objectives: Sequence[dict[str, Any]]) -> None:
    """Hold the gradient of each on the step above to that of another layout of it, whole and cut.

    In the other layout groups and rows stand in another order, with garbage behind them.
    """
    for parts in objectives:
        algorithm = objective(parts)
        groups = groups_of(STEP, parts["advantage"])
        expected = gradient(batch_from(groups, algorithm), algorithm)
        assert expected.any(), parts
        other = padded(batch_from(shuffled(groups, 1), algorithm), 3)
        assert_same_gradient(gradient(other, algorithm, token_budget=9), expected, parts)
        whole = loss_of(POLICY, other, algorithm, TEMPERATURE, ENTROPY_COEFFICIENT).loss
        assert_same_gradient(torch.autograd.grad(whole, POLICY.table)[0], expected, parts)


def test_the_matrix_holds_every_objective_that_a_configuration_can_name() -> None:
    assert {parts["advantage"] for parts in MATRIX} == set(ADVANTAGES)
    assert len(MATRIX) == len({name_of(parts) for parts in MATRIX}) == 14 * (9 * 6 + 3 * 2)
    pairs = [set().union(*(together(one, 2) for one in some)) for some in (PAIRED, MATRIX)]
    assert pairs[0] == pairs[1]
    for parts in [*PARTS, EVERYTHING]:
        assert CROSSED[name_of(parts)]
        assert all(parts.items() <= one.items() for one in CROSSED[name_of(parts)]), parts
    for kl in DIVERGENCES:
        met = [one for one in EVERY_CROSSED if one.get("kl") == kl]
        assert {one["loss"] for one in met} == set(LOSSES)
        assert {one["aggregation"] for one in met} == set(AGGREGATIONS)
        left_out = set(ADVANTAGES) - {one["advantage"] for one in met}
        assert left_out == (set(NOT_SHAPED) if kl == "k1_in_reward" else set())


def with_advantage(advantage: str, objectives: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [parts for parts in objectives if parts["advantage"] == advantage]


@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_whichever_two_parts_meet_the_step_is_the_same_however_it_is_laid_out_and_cut(
    advantage: str,
) -> None:
    assert_invariant(with_advantage(advantage, PAIRED))


@pytest.mark.parametrize("crossed", CROSSED)
def test_every_other_part_is_the_same_too(crossed: str) -> None:
    assert_invariant(CROSSED[crossed])


@pytest.mark.thorough
@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_every_objective_is_the_same_however_its_step_is_laid_out_and_cut(advantage: str) -> None:
    assert_invariant(with_advantage(advantage, MATRIX))


@pytest.mark.thorough
@pytest.mark.parametrize("advantage", ADVANTAGES)
@pytest.mark.parametrize("kl", DIVERGENCES)
def test_every_divergence_with_every_objective_is_the_same_too(kl: str, advantage: str) -> None:
    objectives = with_advantage(advantage, usable({"kl": kl, "kl_beta": 0.1}))
    assert bool(objectives) != (kl == "k1_in_reward" and advantage in NOT_SHAPED)
    assert_invariant(objectives)


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

ANY_OBJECTIVE = st.sampled_from([one | {"pass_k": 1} for one in [*MATRIX, *EVERY_CROSSED]])


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
    for parts in with_advantage(advantage, PAIRED):
        algorithm = objective(parts)
        batch = batch_from(groups, algorithm)
        assert not batch.row_trains().any(), parts
        assert accumulate(POLICY, batch, algorithm, temperature=1.0, token_budget=5) is None, parts


def test_a_step_of_empty_completions_trains_nothing() -> None:
    for parts in [*MATRIX[::40], *EVERY_CROSSED]:
        algorithm = objective(parts)
        batch = batch_from([make_group(0, [((), 0.0), ((), 1.0)])], algorithm)
        assert accumulate(POLICY, batch, algorithm, temperature=1.0, token_budget=5) is None, parts
        # Nor does it break the whole: a loss of 0 that a backward pass can go through.
        output = loss_of(POLICY, batch, algorithm, 1.0, ENTROPY_COEFFICIENT)
        (nothing,) = torch.autograd.grad(output.loss, POLICY.table)
        assert output.loss.item() == 0, parts
        assert not nothing.any(), parts


def output_of(batch: Batch, algorithm: Algorithm, token_budget: int) -> LossOutput:
    """The diagnostics of a batch that was cut."""
    done = accumulate(
        POLICY,
        batch,
        algorithm,
        temperature=TEMPERATURE,
        token_budget=token_budget,
        entropy_coefficient=ENTROPY_COEFFICIENT,
    )
    assert done is not None
    return done.output


@pytest.mark.parametrize("parts", EVERY_CROSSED[::7], ids=name_of)
def test_the_diagnostics_of_the_passes_add_up_to_those_of_the_whole(parts: dict[str, Any]) -> None:
    algorithm = objective(parts)
    batch = batch_from(groups_of(STEP, parts["advantage"]), algorithm)
    whole = output_of(batch, algorithm, 10**9)
    assert (whole.kl is None) == (algorithm.divergence is None)
    for token_budget in (1, 8, 17):
        cut = output_of(batch, algorithm, token_budget)
        assert (cut.tokens, cut.clipped) == (whole.tokens, whole.clipped)
        assert cut.loss.item() == pytest.approx(whole.loss.item(), abs=1e-12)
        assert cut.entropy == pytest.approx(whole.entropy, abs=1e-12)
        assert cut.mismatch == pytest.approx(whole.mismatch, abs=1e-12)
        assert cut.largest_mismatch == whole.largest_mismatch
        assert (cut.kl is None) == (whole.kl is None)
        if whole.kl is not None:
            assert cut.kl == pytest.approx(whole.kl, abs=1e-12)
