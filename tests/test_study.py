"""The bench for estimators: many runs at once, and exact gradients."""

import csv
from pathlib import Path

import pytest
import torch
from golden import cases

from verigrad.algorithms import PRESETS
from verigrad.cli import main
from verigrad.errors import StorageError, UserError
from verigrad.study import Setting, algorithm_of, exact_estimate, run_many, settings, study
from verigrad.study.runs import STEP_WIDE

GRPO = Setting(algorithm="grpo", completions=8, learning_rate=0.5)


def run(setting: Setting, seeds: list[int], steps: int) -> torch.Tensor:
    wide = PRESETS[setting.algorithm].advantage in STEP_WIDE
    algorithm = algorithm_of(setting.algorithm)
    return run_many(setting, algorithm, seeds=seeds, steps=steps, step_wide=wide)


def test_the_toy_task_is_learned_by_every_seed() -> None:
    rewards = run(GRPO, list(range(20)), 1500)
    assert rewards[:, :20].mean() < 0.3
    assert rewards[:, -200:].mean() > 0.98


@pytest.mark.parametrize("name", ["grpo", "cispo", "pkpo", "lite_ppo", "reinforce_pp"])
def test_a_seed_among_many_is_that_seed_alone_bit_for_bit(name: str) -> None:
    setting = Setting(algorithm=name, completions=4, learning_rate=0.5)
    together = run(setting, list(range(30)), 60)
    assert torch.equal(run(setting, [7], 60)[0], together[7])
    assert not torch.equal(together[7], together[8])


@pytest.mark.parametrize(("inputs", "expected"), cases("tabular_weight"))
def test_the_exact_weights_are_the_golden_ones(inputs: dict, expected: dict) -> None:
    del inputs
    rows = [row for row in expected["rows"] if row["estimator"] in ("rloo", "dr_grpo")]
    assert len(rows) > 10
    for row in rows:
        found = exact_estimate(algorithm_of(row["estimator"]), row["K"], row["p"])
        assert found.weight == pytest.approx(row["w"], abs=1e-9)


def test_dividing_by_the_deviation_favours_problems_almost_always_or_never_solved() -> None:
    grpo, rloo = algorithm_of("grpo"), algorithm_of("rloo")
    weights = [exact_estimate(grpo, 16, p).weight for p in (0.01, 0.5, 0.99)]
    assert weights[0] > 1.5 * weights[1]
    assert weights[2] > 1.5 * weights[1]
    assert [exact_estimate(rloo, 16, p).weight for p in (0.01, 0.5, 0.99)] == pytest.approx([1] * 3)


def test_the_share_without_signal_is_that_of_groups_all_right_or_all_wrong() -> None:
    assert exact_estimate(algorithm_of("rloo"), 4, 0.1).no_signal == pytest.approx(0.9**4 + 0.1**4)


def test_a_harder_start_is_learned_later() -> None:
    hard = Setting(algorithm="grpo", completions=8, learning_rate=0.5, difficulty=3.0)
    assert run(hard, [0, 1, 2, 3], 200).mean() < run(GRPO, [0, 1, 2, 3], 200).mean() - 0.1


def test_settings_are_all_combinations_that_the_preset_allows() -> None:
    chosen = settings(["grpo", "pkpo"], [2, 4], [0.1, 0.5], [0.0])
    assert [(s.algorithm, s.completions, s.learning_rate) for s in chosen] == [
        ("grpo", 2, 0.1),
        ("grpo", 2, 0.5),
        ("grpo", 4, 0.1),
        ("grpo", 4, 0.5),
        ("pkpo", 4, 0.1),
        ("pkpo", 4, 0.5),
    ]


def test_the_command_prints_both_tables_and_writes_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["study", "--algorithms", "grpo,rloo", "--completions", "4", "--seeds", "3",
                 "--steps", "40", "--out", str(tmp_path / "out")]  # fmt: skip
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "median steps to learn" in printed
    assert "w(0.5)" in printed
    with (tmp_path / "out" / "gradients.csv").open() as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    assert rows["rloo"]["w(0.25)"] == "1.000"
    assert (tmp_path / "out" / "learning.svg").read_text().count("<svg") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--algorithms", "grop"], "'grop' is no preset"),
        (["--completions", "four"], "--completions is"),
        (["--learning-rates", "nan"], "--learning-rates is"),
        (["--seeds", "0"], "--seeds is 0"),
        (["--algorithms", "pkpo", "--completions", "2"], "no preset is left"),
        (["--out", __file__], "--out"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", *arguments, "--steps", "1"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_study_without_a_folder_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "grpo" in study([GRPO], seeds=[0], steps=5, folder=None)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_refused_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verigrad.study.report.run_many", None)
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(UserError, match=r"--out .*taken cannot be made: File exists"):
        study([GRPO], seeds=[0], steps=5, folder=taken)


def test_a_study_that_cannot_be_written_ends_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "learning.csv").mkdir()
    with pytest.raises(StorageError, match=r"a file in .* cannot be written: Is a directory"):
        study([GRPO], seeds=[0], steps=5, folder=tmp_path)


def test_a_figure_of_one_run_has_no_band(tmp_path: Path) -> None:
    study([GRPO], seeds=[0], steps=5, folder=tmp_path)
    assert (tmp_path / "learning.svg").read_text().count("<svg") == 1
