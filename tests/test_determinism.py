"""``--check-determinism``: the same steps twice, in fresh processes, and the first difference."""

import json
from pathlib import Path
from typing import Any

import pytest
from running import ON_PATH, TOY, write_task

from verigrad.cli import main
from verigrad.training.determinism import first_difference
from verigrad.training.folder import RunFolder

ROLLOUT: dict[str, Any] = {
    "step": 1, "problem": "a", "completion": 0, "token_ids": [4, 5, 6], "log_probs": [-1.0, -2.0],
    "status": "scored", "reward": 1.0, "finish": "stopped",
}  # fmt: skip
METRICS: dict[str, Any] = {"step": 1, "reward/mean": 0.5, "time/step": 3.0, "memory/peak": 7}


def run_folder(
    root: Path,
    *,
    rollouts: list[dict[str, Any]],
    metrics: list[dict[str, Any]],
    weights: bytes = b"w",
) -> RunFolder:
    (root / "final").mkdir(parents=True)
    (root / "final" / "policy.safetensors").write_bytes(weights)
    for name, lines in (("rollouts", rollouts), ("metrics", metrics)):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RunFolder(root=root)


def difference(tmp_path: Path, **second: Any) -> str | None:
    """That of a plain run to one with some files replaced."""
    first = {"rollouts": [ROLLOUT], "metrics": [METRICS]}
    return first_difference(
        run_folder(tmp_path / "first", **first), run_folder(tmp_path / "second", **first | second)
    )


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({}, None),
        ({"metrics": [METRICS | {"time/step": 9.0, "memory/peak": 8}]}, None),
        (
            {"rollouts": [ROLLOUT | {"token_ids": [4, 9, 6]}]},
            "step 1, problem 'a', completion 1, token_ids, number 2: [5] and [9]",
        ),
        (
            {"rollouts": [ROLLOUT | {"token_ids": [4, 5]}]},
            "step 1, problem 'a', completion 1, token_ids, number 3: [6] and []",
        ),
        (
            {"rollouts": [ROLLOUT | {"log_probs": [-1.0, -2.0000000000000004]}]},
            "step 1, problem 'a', completion 1, log_probs, number 2: [-2.0] and "
            "[-2.0000000000000004]",
        ),
        ({"metrics": [METRICS | {"reward/mean": 0.25}]}, "step 1, reward/mean: 0.5 and 0.25"),
        ({"metrics": [METRICS, METRICS | {"step": 2}]}, "step 2, reward/mean: None and 0.5"),
    ],
)
def test_the_first_difference_is_said_and_the_clock_is_none(second, words, tmp_path):
    assert difference(tmp_path, **second) == words


def test_the_earlier_of_two_differences_is_said(tmp_path):
    late = [ROLLOUT, ROLLOUT | {"step": 2, "reward": 0.0}]
    second = {"rollouts": late, "metrics": [METRICS | {"reward/mean": 0.25}]}
    assert difference(tmp_path, **second) == "step 1, reward/mean: 0.5 and 0.25"


def test_other_weights_are_a_difference(tmp_path):
    words = difference(tmp_path, weights=b"v")
    assert words is not None
    assert words.startswith("the weights after the last step: ")


@pytest.fixture(autouse=True)
def same_library(monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ON_PATH["PYTHONPATH"])


@pytest.mark.thorough
def test_a_configuration_that_is_deterministic_is_said_to_be(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(TOY), "--check-determinism", "5"]) == 0
    assert capsys.readouterr().out.startswith("the same: 5 steps of tabular with grpo, twice, ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.thorough
def test_a_verifier_that_throws_dice_is_found(tmp_path, capsys):
    code = (
        "import random\n"
        "problems = [Problem(id=str(n), prompt=str(n), reference=n) for n in range(9)]\n"
        "task = ProblemTask('dice', problems, lambda c, r: random.SystemRandom().random())"
    )
    file = write_task(tmp_path, code)
    options = ["--task", f"{file}:task", "--check-determinism", "5", "--verifier.check", "off"]
    assert main(["train", str(TOY), *options]) == 1
    out = capsys.readouterr().out
    assert out.startswith("NOT the same: 5 steps of tabular")
    assert "\nfirst difference: step 1, problem " in out
    assert ", completion 1, reward: " in out


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([str(TOY), "--check-determinism", "0"], "train: --check-determinism is 0; it must be"),
        (["--resume", "run", "--check-determinism", "3"], "train has both --resume and --check-"),
    ],
)
def test_a_check_that_cannot_be_made_is_refused(options, line, capsys):
    assert main(["train", *options]) == 2
    assert capsys.readouterr().err.startswith(f"verigrad: error: {line}")


def test_what_is_wrong_with_a_run_of_the_check_is_said_once(tmp_path, capsys):
    file = write_task(tmp_path, "task = None / 2")
    options = ["--task", f"{file}:task", "--check-determinism", "3"]
    assert main(["train", str(TOY), *options]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"verigrad: error: {file} fails to run: TypeError: ")
    assert err.count("\n") == 1
