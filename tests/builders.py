"""Small real parts to build tests from: problems, groups, algorithms, and a table to train.

Problems are p0, p1, ...; problem ``p<row>`` is row ``row`` of the table, which is also the only
token of its prompt.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from verigrad.algorithms import PRESETS, Algorithm, algorithm_from
from verigrad.algorithms.rules import PASS_AT_K, refuse_wrong
from verigrad.batch import Batch, make_batch, select_rows
from verigrad.config import AlgorithmConfig
from verigrad.config.algorithm import ADVANTAGES, AGGREGATIONS, LOSSES
from verigrad.errors import ConfigError
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.memory import TokenBudget
from verigrad.training.step import accumulate
from verigrad.types import Completion, Finish, Group, Problem, Prompt, Rollout, Verdict

STOP = 0
"""The token that ends a completion; also what pads."""

Rows = list[tuple[tuple[int, ...], float | None]]
"""The tokens and the reward of each completion of a problem; None is a failed verdict."""


def make_table(
    *,
    problems: int = 3,
    answers: int = 5,
    positions: int = 4,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> TabularPolicy:
    """A policy whose completions are up to ``positions`` tokens long and end with STOP."""
    return TabularPolicy(
        [f"p{row}" for row in range(problems)],
        answers=answers,
        positions=positions,
        stop_token_ids=(STOP,),
        seed=seed,
        dtype=dtype,
    )


def make_problem(row: int = 0) -> Problem:
    return Problem(id=f"p{row}", prompt=f"problem {row}", reference=row)


def make_completion(
    token_ids: Sequence[int], *, stop: int = STOP, log_prob: float = -1.0
) -> Completion:
    """A completion that stopped if its last token is ``stop``."""
    stopped = len(token_ids) > 0 and token_ids[-1] == stop
    return Completion(
        token_ids=tuple(token_ids),
        log_probs=(log_prob,) * len(token_ids),
        finish=Finish.STOPPED if stopped else Finish.TRUNCATED,
        policy_version=0,
        text=" ".join(str(token) for token in token_ids),
    )


def make_group(row: int, rows: Iterable[tuple[Sequence[int], float | None]]) -> Group:
    """The group of problem ``p<row>``."""
    prompt = Prompt(problem_id=f"p{row}", token_ids=(row,))
    return Group(
        problem=make_problem(row),
        rollouts=tuple(
            Rollout(
                prompt=prompt,
                completion=make_completion(token_ids),
                verdict=Verdict.failed("broken") if reward is None else Verdict.scored(reward),
            )
            for token_ids, reward in rows
        ),
    )


@cache
def make_algorithm(preset: str = "grpo", *, max_new_tokens: int = 4, **parts: object) -> Algorithm:
    """A preset with some of its parts replaced: ``make_algorithm("rloo", clip_low=0.1)``.

    The same one for the same parts: it holds no state, and properties ask for it at each example.
    """
    config = replace(AlgorithmConfig(preset=preset), **parts)  # type: ignore[arg-type]
    return algorithm_from(config, max_new_tokens=max_new_tokens)


def is_allowed(**parts: Any) -> bool:
    """Whether the rules let parts go together."""
    try:
        refuse_wrong(replace(PRESETS["rloo"], **parts))
    except ConfigError:
        return False
    return True


def allowed_objectives(pass_k: int) -> list[dict[str, Any]]:
    """Every advantage, loss and aggregation that go together, as keys of a configuration.

    Made from the tables of a configuration: a new member is covered the day it is added.
    """
    names = product(ADVANTAGES, LOSSES, AGGREGATIONS)
    every = [
        {"advantage": advantage, "loss": loss, "aggregation": rule, "pass_k": pass_k}
        for advantage, loss, rule in names
    ]
    return [parts for parts in every if is_allowed(**parts)]


def reward_for(advantage: str, reward: float) -> float:
    """A reward that the estimator takes: for pass@k 0 or 1, for maxrl none below 0."""
    if advantage in PASS_AT_K:
        return float(reward > 0)
    return abs(reward) if advantage == "maxrl" else reward


def batch_of(
    groups: Sequence[Group], algorithm: Algorithm, *, dtype: torch.dtype = torch.float64
) -> Batch:
    """The batch of groups of which at least one rollout is scored."""
    batch = make_batch(groups, algorithm, dtype=dtype)
    assert batch is not None
    return batch


def gradient_of(
    policy: TabularPolicy,
    batch: Batch,
    algorithm: Algorithm,
    *,
    token_budget: int = 10**9,
    entropy_coefficient: float = 0.0,
) -> Tensor:
    """The gradient that an update would use, at temperature 0.7, in passes of ``token_budget``."""
    policy.table.grad = None
    accumulate(
        policy,
        batch,
        algorithm,
        temperature=0.7,
        token_budget=token_budget,
        entropy_coefficient=entropy_coefficient,
    )
    return torch.zeros_like(policy.table) if policy.table.grad is None else policy.table.grad


def cut(batch: Batch, token_budget: int) -> Iterator[Batch]:
    """The passes of an update: whole rows that train, as ``accumulate`` goes through them."""
    rows = batch.row_trains().nonzero().flatten().tolist()
    for some in TokenBudget(token_budget).passes(batch, rows):
        yield select_rows(batch, some.rows)


def assert_same_gradient(actual: Tensor, expected: Tensor, of: object = "") -> None:
    """Hold a float64 gradient to 1e-12, relative to the largest entry where that is above 1."""
    assert (actual - expected).abs().max() <= 1e-12 * max(1.0, expected.abs().max().item()), of


def assert_same_batch(actual: Batch, expected: Batch) -> None:
    """Hold every field of a batch to that of another, bit for bit."""
    for field in fields(Batch):
        one, other = getattr(actual, field.name), getattr(expected, field.name)
        same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
        assert same, f"{field.name} differs: {one} and {other}"
