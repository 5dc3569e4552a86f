"""The numbers of a step, by hand, and the page that explains each of them."""

import math
import re
import sys
from dataclasses import replace

import pytest
import torch
from builders import make_group
from running import REPOSITORY

from verigrad.batch import LossOutput
from verigrad.diagnosis import Metrics
from verigrad.evaluation import Evaluation
from verigrad.training.metrics import peak_memory, step_metrics
from verigrad.training.step import Update
from verigrad.types import FailureKind, Rollout, Status, Verdict

STOPPED, CUT = (1, 0), (1, 2, 3)

GROUPS = [
    make_group(0, [(STOPPED, 1.0), (STOPPED, 0.0), (CUT, None)]),
    make_group(1, [(STOPPED, 1.0), (STOPPED, 2.0), (STOPPED, None)]),
    make_group(2, [(CUT, 0.0), (CUT, 0.0), (CUT, -1.0)]),
    make_group(3, [(STOPPED, None), (STOPPED, None), (STOPPED, None)]),
]

UPDATE = Update(
    output=LossOutput(
        loss=torch.tensor(0.5), tokens=8, clipped=2, entropy=12.0, kl=0.04, mismatch=0.004,
        largest_mismatch=0.003,
    ),
    gradient_norm=1.5,
    passes=3,
    prompt_tokens=7,
    updates=2,
)  # fmt: skip

EVALUATION = Evaluation(
    problems=4, completions=4, accuracy=0.5, low=0.15, high=0.85, truncated=1, unparsable=1,
    wrong=0, failed=2,
)  # fmt: skip


def metrics(
    groups: list = GROUPS,
    update: Update | None = UPDATE,
    evaluation: Evaluation | None = EVALUATION,
    **times: float,
) -> Metrics:
    return step_metrics(
        3,
        groups,
        update,
        policy_version=9,
        token_budget=512,
        entropy_coefficient=0.01,
        evaluation=evaluation,
        times=times,
    )


def area(found: Metrics, name: str) -> dict[str, int | float | None]:
    """The metrics of one area, by their own names."""
    return {
        key.removeprefix(f"{name}/"): value
        for key, value in found.items()
        if key.startswith(f"{name}/")
    }


def test_rewards_are_those_of_scored_rollouts():
    # 1, 0, 1, 2, 0, 0, -1: mean 3/7, sum of squares 7.
    deviation = math.sqrt((7 - 9 / 7) / 6)
    assert area(metrics(), "reward") == pytest.approx({"mean": 3 / 7, "deviation": deviation})


def test_groups_are_counted_by_what_they_teach():
    # The third differs within itself and is still all wrong; a failed group is neither.
    assert area(metrics(), "groups") == {
        "total": 4, "with_signal": 3, "all_right": 1, "all_wrong": 1,
    }  # fmt: skip


def test_verdicts_and_completions_are_counted():
    found = metrics()
    assert area(found, "verdicts") == {"scored": 7, "unparsable": 0, "failed": 5}
    assert area(found, "completions") == {"total": 12, "truncated": 4, "mean_length": 28 / 12}
    assert area(found, "tokens") == {
        "generated": 28, "prompt": 4, "trained": 8, "trained_prompt": 7,
    }  # fmt: skip


def test_sums_over_tokens_become_means_once():
    found = metrics()
    # The loss is the mean over the step's two updates.
    assert area(found, "loss") == {"total": 0.25}
    assert area(found, "policy") == {
        "entropy": 1.5, "kl": 0.005, "clipped": 0.25, "mismatch": 0.0005,
        "largest_mismatch": 0.003,
    }  # fmt: skip
    assert area(found, "optimizer") == {
        "gradient_norm": 1.5, "passes": 3, "updates": 9, "entropy_coefficient": 0.01,
    }  # fmt: skip


def test_the_divergence_is_none_without_a_reference():
    output = replace(UPDATE.output, kl=None)
    assert metrics(update=replace(UPDATE, output=output))["policy/kl"] is None


def test_updates_of_a_step_add_up_with_the_mean_of_their_norms():
    total = UPDATE + replace(UPDATE, gradient_norm=4.5, updates=1)
    assert (total.updates, total.gradient_norm, total.passes, total.prompt_tokens) == (
        3,
        2.5,
        6,
        14,
    )
    assert (total.output.loss, total.output.tokens, total.output.kl) == (1.0, 16, 0.08)


def test_the_evaluation_is_passed_on():
    assert area(metrics(), "eval") == {
        "problems": 4, "completions": 4, "accuracy": 0.5, "low": 0.15, "high": 0.85,
        "truncated": 1, "unparsable": 1, "wrong": 0, "failed": 2,
    }  # fmt: skip


def test_verifications_are_counted_with_the_ways_they_failed():
    timeout = Verdict.failed("timeout: no verdict", FailureKind.TIMEOUT)
    group = make_group(0, [(STOPPED, 1.0), (STOPPED, None), (STOPPED, None), (CUT, 0.0)])
    late = replace(group.rollouts[1], verdict=timeout)
    rollouts = (group.rollouts[0], late, *group.rollouts[2:])
    assert area(metrics(groups=[replace(group, rollouts=rollouts)]), "verify") == {
        "calls": 4, "exception": 1, "timeout": 1, "memory": 0, "bad_value": 0, "died": 0,
    }  # fmt: skip


def test_speed_counts_the_tokens_of_the_step_over_its_work():
    times = {
        "step": 9.0, "generate": 2.0, "verify": 0.5, "train": 1.5, "evaluate": 4.0,
        "verify_median": 0.001, "verify_p95": 0.002, "verify_max": 0.1, "verify_restarts": 0.0,
    }  # fmt: skip
    assert area(metrics(**times), "time") == {**times, "tokens_per_second": 7.0}


def test_what_was_not_measured_is_none():
    found = metrics(groups=[], update=None, evaluation=None)
    counts = ("groups", "verdicts", "tokens")
    assert all(value == 0 for name in counts for value in area(found, name).values())
    for name in ("reward", "verify", "loss", "policy", "eval", "time"):
        assert set(area(found, name).values()) == {None}
    assert (found["completions/mean_length"], found["optimizer/gradient_norm"]) == (None, None)


def test_one_reward_has_no_deviation():
    found = metrics(groups=[make_group(0, [(STOPPED, 1.0), (STOPPED, None)])])
    assert area(found, "reward") == {"mean": 1.0, "deviation": None}


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not say")
def test_peak_memory_is_in_bytes():
    # An interpreter with torch in it: more than 50 MB, less than a terabyte.
    assert 50e6 < (peak_memory() or 0) < 1e12


def documented() -> list[str]:
    """The keys that the page of metrics explains."""
    page = (REPOSITORY / "docs" / "metrics.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    return [key for cell in rows for key in re.findall(r"`([^`]+)`", cell)]


def test_the_page_of_metrics_explains_every_key_and_no_other():
    parts = Verdict(status=Status.SCORED, reward=1.0, components={"NAME": 1.0})
    rollout = replace(GROUPS[0].rollouts[0], verdict=parts)
    found = step_metrics(
        1, [replace(GROUPS[0], rollouts=(rollout,))], None, policy_version=0, token_budget=512,
        evaluation=None, parts=["NAME"], times={},
    )  # fmt: skip
    assert sorted(documented()) == sorted(key for key in found if key != "step")


def test_each_part_of_a_reward_has_its_mean_and_spread():
    def rewarded(right: float, short: float) -> Rollout:
        verdict = Verdict(
            status=Status.SCORED, reward=1.0, components={"right": right, "short": short}
        )
        return replace(GROUPS[0].rollouts[0], verdict=verdict)

    rows = (rewarded(1.0, 0.5), rewarded(0.0, 0.5), rewarded(0.0, math.nan))
    found = metrics(groups=[replace(GROUPS[0], rollouts=rows)])
    assert area(found, "reward/part") == pytest.approx(
        {
            "right/mean": 1 / 3,
            "right/deviation": math.sqrt(1 / 3),
            "short/mean": 0.5,
            "short/deviation": 0.0,
        }
    )


def test_each_task_of_a_mixture_has_its_own_rewards_and_accuracy():
    groups = [
        replace(group, problem=replace(group.problem, metadata={"task": name}))
        for group, name in zip(GROUPS[:2], ("easy", "hard"), strict=True)
    ]
    found = step_metrics(
        1, groups, None, policy_version=0, token_budget=512, evaluation=None, evaluated=groups[:1],
        parts=("easy", "hard", "rare"), times={},
    )  # fmt: skip
    assert area(found, "reward/task") == pytest.approx(
        {
            "easy/mean": 0.5, "easy/deviation": math.sqrt(0.5),
            "hard/mean": 1.5, "hard/deviation": math.sqrt(0.5),
            "rare/mean": None, "rare/deviation": None,
        }
    )  # fmt: skip
    assert area(found, "eval/task") == {
        "easy/accuracy": 0.5, "hard/accuracy": None, "rare/accuracy": None,
    }  # fmt: skip
