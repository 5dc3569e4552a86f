"""Accuracies, pass@k, and intervals for them."""

from typing import Any

import pytest
import torch
from golden import cases, tensor

from verigrad.core.statistics import (
    bootstrap_interval,
    mean_and_error,
    pass_at_k,
    wilson_interval,
)


@pytest.mark.parametrize(("inputs", "expected"), cases("eval_pass_at_k"))
def test_golden_pass_at_k_is_unbiased(inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    for row in expected["rows"]:
        actual = pass_at_k(row["n"], row["c"], row["k"])
        assert actual == pytest.approx(row["pass_at_k"], abs=1e-12), row


@pytest.mark.parametrize("k", [0, 4])
def test_pass_at_k_needs_k_completions(k: int) -> None:
    with pytest.raises(ValueError, match=rf"pass@{k} needs at least {k} completions .*, not 3"):
        pass_at_k(3, 1, k)


@pytest.mark.parametrize(("inputs", "expected"), cases("eval_avg_at_k"))
def test_golden_mean_and_error_take_the_problem_as_the_unit(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    per_problem = [sum(row) / len(row) for row in inputs["correct"]]
    mean, error = mean_and_error(per_problem)
    assert mean == pytest.approx(expected["avg"], abs=1e-12)
    assert error == pytest.approx(expected["se_prompt"], abs=1e-12)
    picks = torch.tensor(inputs["bootstrap_prompt_indices"])
    means = tensor(per_problem)[picks].mean(dim=1).sort().values
    assert means.tolist() == pytest.approx(expected["bootstrap_means_sorted"], abs=1e-12)
    ends = torch.quantile(means, tensor([0.05, 0.95])).tolist()
    assert ends == pytest.approx(expected["ci"], abs=1e-12)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (0, 10, 0.0, 0.2775328),
        (10, 10, 0.7224672, 1.0),
        (8, 10, 0.4901625, 0.9433178),
        (50, 100, 0.4038315, 0.5961685),
        (1, 1, 0.2065493, 1.0),
    ],
)
def test_wilson_interval_of_known_counts(
    successes: int, trials: int, low: float, high: float
) -> None:
    interval = wilson_interval(successes, trials, z=1.959964)
    assert interval == pytest.approx((low, high), abs=1e-6)


def test_the_ends_of_a_wilson_interval_are_the_shares_that_just_fit() -> None:
    """Its definition: the observed share is z standard errors away from either end."""
    for end in wilson_interval(30, 40):
        assert abs(0.75 - end) == pytest.approx(1.96 * (end * (1 - end) / 40) ** 0.5, abs=1e-12)


def test_a_wilson_interval_shrinks_with_more_trials_and_grows_with_confidence() -> None:
    def width(*counts: int, z: float = 1.96) -> float:
        low, high = wilson_interval(*counts, z=z)
        return high - low

    assert width(300, 400) < width(30, 40) < width(30, 40, z=2.58)


def test_bootstrap_interval_of_a_constant_is_that_constant() -> None:
    assert bootstrap_interval([0.25] * 7) == (0.25, 0.25)


def test_bootstrap_interval_agrees_with_the_standard_error_for_many_problems() -> None:
    per_problem = [0.0, 1.0] * 100
    low, high = bootstrap_interval(per_problem)
    half = 1.96 * 0.5 / len(per_problem) ** 0.5
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.01)


def test_the_problem_is_the_unit_that_is_resampled() -> None:
    """Four problems, half of whose completions are right each: no problem differs, so no spread."""
    assert bootstrap_interval([0.5] * 4) == (0.5, 0.5)
    low, high = bootstrap_interval([0.0, 0.0, 1.0, 1.0])
    assert (low, high) == (0.0, 1.0)


def test_bootstrap_interval_is_the_same_every_time() -> None:
    assert bootstrap_interval([0.1, 0.7, 0.4]) == bootstrap_interval([0.1, 0.7, 0.4])
