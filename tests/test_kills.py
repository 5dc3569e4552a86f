"""Kills at random moments: the run ends as one that nothing had disturbed, byte for byte."""

import pytest
from kills import MOMENTS, kill_and_compare, language_model, table


@pytest.mark.parametrize(
    ("case", "kills", "seed"),
    [
        pytest.param(table, 6, 1, id="table"),
        pytest.param(language_model, 4, 2, id="model", marks=pytest.mark.thorough),
    ],
)
def test_a_run_killed_at_random_moments_is_the_same_run(case, kills, seed, tmp_path):
    died = kill_and_compare(case, tmp_path / "runs", kills, seed)
    assert len(died) == kills
    assert set(died) <= set(MOMENTS)
