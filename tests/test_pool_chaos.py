"""Thousands of calls of a verifier of which every seventh or so goes wrong."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress

import pytest
import torch
from builders import make_algorithm, make_group
from chaos import KINDS, LIMITS, WORKERS, Timed, planned, timed, workers_of_this_process

from verigrad.batch import Batch, make_batch
from verigrad.config.algorithm import ADVANTAGES
from verigrad.types import Group, Status, Verdict

pytest.importorskip("cloudpickle")

COMPLETIONS = 8
"""Of one problem."""

OF_THE_WHOLE_STEP = {"batch_std", "reinforce_pp", "reinforce_pp_baseline", "gdpo"}
"""The estimators that look beyond a group."""


@dataclass(frozen=True)
class Chaos:
    plan: list[str]
    clean: Timed
    chaos: Timed


@pytest.fixture(scope="module", params=[200, pytest.param(3000, marks=pytest.mark.long)])
def run(request: pytest.FixtureRequest) -> Chaos:
    """The same calls without and with trouble."""
    plan = planned(request.param)
    answers = [(str(number), number if number % 3 else -1) for number in range(len(plan))]
    calls = [a if what == "answer" else (what, 0) for what, a in zip(plan, answers, strict=True)]
    return Chaos(plan, timed(answers), timed(calls))


def test_every_outcome_is_right_whatever_happens_beside_it(run: Chaos) -> None:
    for place, (what, verdict) in enumerate(zip(run.plan, run.chaos.verdicts, strict=True)):
        if what == "answer":
            assert verdict.status is Status.SCORED
            assert verdict == run.clean.verdicts[place]
            assert verdict.reward == (1.0 if place % 3 else 0.0)
        else:
            assert (verdict.status, verdict.kind) == (Status.FAILED, KINDS[what])


def test_trouble_costs_its_own_time_and_no_more_and_leaves_nothing_behind(run: Chaos) -> None:
    clean, chaos = run.clean, run.chaos
    done = Counter(run.plan)
    replaced = done["hang"] + done["kill"] + done["hog"]
    # The last calls may leave a worker dead that nobody needed again.
    assert replaced - WORKERS <= len(chaos.restarts) <= replaced
    hangs = done["hang"] * LIMITS.cpu_seconds / WORKERS
    allowed = 2 * clean.seconds + hangs + sum(chaos.restarts) + LIMITS.wall_seconds
    assert chaos.seconds <= allowed
    assert workers_of_this_process() == []


def step_of(verdicts: Sequence[Verdict]) -> list[Group]:
    """The groups of a step with these verdicts; completions are of one to five tokens."""
    groups = []
    for row, start in enumerate(range(0, len(verdicts), COMPLETIONS)):
        some = verdicts[start : start + COMPLETIONS]
        group = make_group(row, [((1,) * (1 + place % 5), 0.0) for place in range(len(some))])
        pairs = zip(group.rollouts, some, strict=True)
        groups.append(
            replace(group, rollouts=tuple(replace(one, verdict=said) for one, said in pairs))
        )
    return groups


def never_drawn(groups: Sequence[Group], plan: Sequence[str]) -> list[Group]:
    """The groups without the rollouts that are to go wrong."""
    fine = [what == "answer" for what in plan]
    rows = [fine[start : start + COMPLETIONS] for start in range(0, len(fine), COMPLETIONS)]
    return [
        replace(group, rollouts=tuple(compress(group.rollouts, row)))
        for group, row in zip(groups, rows, strict=True)
    ]


def advantages_of(batch: Batch, problem: str) -> torch.Tensor:
    """The advantages of one problem's rows."""
    names = [prompt.problem_id for prompt in batch.prompts]
    return batch.advantages[batch.group_index == names.index(problem)]


@pytest.mark.parametrize("name", ADVANTAGES)
def test_the_step_is_the_one_in_which_what_failed_was_never_drawn(run: Chaos, name: str) -> None:
    algorithm = make_algorithm("rloo", advantage=name, pass_k=2)
    batch = make_batch(step_of(run.chaos.verdicts), algorithm)
    clean = make_batch(never_drawn(step_of(run.clean.verdicts), run.plan), algorithm)
    assert batch is not None
    assert clean is not None
    for part in ("token_ids", "group_index", "advantages", "weights"):
        assert torch.equal(getattr(batch, part), getattr(clean, part))


@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - OF_THE_WHOLE_STEP))
def test_a_group_that_nothing_happened_to_has_the_advantages_of_a_clean_step(
    run: Chaos, name: str
) -> None:
    algorithm = make_algorithm("rloo", advantage=name, pass_k=2)
    chaos, clean = step_of(run.chaos.verdicts), step_of(run.clean.verdicts)
    unharmed = [group.problem.id for group in chaos if len(group.scored) == COMPLETIONS]
    assert 0 < len(unharmed) < len(chaos)
    batches = [make_batch(groups, algorithm) for groups in (chaos, clean)]
    for problem in unharmed:
        ours, theirs = (advantages_of(batch, problem) for batch in batches if batch is not None)
        width = min(ours.shape[1], theirs.shape[1])
        assert torch.equal(ours[:, :width], theirs[:, :width])
