"""A run whose verifier works in processes of its own."""

import json
from pathlib import Path

import pytest
from running import REPOSITORY

import verigrad
from verigrad import Problem, ProblemTask
from verigrad.errors import TooManyFailuresError
from verigrad.training.records import read_lines

PROBLEMS = [Problem(id=str(n), prompt=f"{n}", reference=n) for n in range(4)]


def config(folder: Path, **verifier: object) -> dict:
    return {
        "model": "tabular",
        "task": {"held_out": 0.0},
        "run": {"folder": str(folder), "steps": 6},
        "sampling": {"problems": 2, "completions": 4, "max_new_tokens": 1},
        "optimizer": {"learning_rate": 0.5},
        "evaluation": {"problems": 0},
        "verifier": verifier,
    }


def without_times(folder: Path) -> list[dict]:
    exempt = ("time/", "memory/")
    return [
        {key: value for key, value in line.items() if not key.startswith(exempt)}
        for line in read_lines(folder / "metrics.jsonl")
    ]


def test_a_run_with_workers_is_the_run_without_them(tmp_path: Path) -> None:
    toy = REPOSITORY / "examples" / "toy.toml"
    for name, workers in (("here", "0"), ("workers", "2")):
        changes = [("run.steps", "20"), ("run.folder", str(tmp_path / name)),
                   ("verifier.workers", workers)]  # fmt: skip
        verigrad.train(verigrad.load_config(toy, changes), quiet=True)
    assert without_times(tmp_path / "here") == without_times(tmp_path / "workers")
    tables = [(tmp_path / name / "final" / "policy.safetensors").read_bytes()
              for name in ("here", "workers")]  # fmt: skip
    assert tables[0] == tables[1]


def test_a_verifier_that_hangs_on_one_answer_fails_there_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    def check(completion: str, reference: int) -> bool:
        while completion == "7":
            pass
        return completion == str(reference)

    task = ProblemTask("hangs", PROBLEMS, check)
    limits = {"workers": 2, "cpu_seconds": 0.2, "wall_seconds": 20.0, "max_failures": 1.0}
    result = verigrad.train(config(tmp_path / "run", **limits), task=task, quiet=True)
    assert result.steps == 6
    with (tmp_path / "run" / "rollouts.jsonl").open() as lines:
        rollouts = [json.loads(line) for line in lines]
    hung = [rollout for rollout in rollouts if rollout["text"] == "7"]
    assert hung, "no completion made the verifier hang"
    assert {rollout["status"] for rollout in hung} == {"failed"}
    others = [rollout for rollout in rollouts if rollout["text"] != "7"]
    assert {rollout["status"] for rollout in others} == {"scored"}


@pytest.mark.thorough
def test_workers_that_die_end_the_run_like_other_failures(tmp_path: Path) -> None:
    def check(completion: str, reference: int) -> bool:
        import os

        os._exit(1)

    task = ProblemTask("dies", PROBLEMS, check)
    with pytest.raises(TooManyFailuresError, match="8 of 8 verifications failed"):
        verigrad.train(config(tmp_path / "run", workers=2), task=task, quiet=True)
