"""Whole runs: with every part of an algorithm on, and with an algorithm of one's own."""

import shutil
from pathlib import Path

import torch
from running import TOY, assert_same_run, read_jsonl
from safetensors.torch import load_file
from steps import KL

from verigrad.cli import main
from verigrad.training.checkpoint import checkpoints

EVERYTHING = [
    *("train", str(TOY), "--run.steps", "8"),
    *("--sampling.problems", "3", "--sampling.completions", "4"),
    *("--checkpoint.every", "2", "--checkpoint.keep", "4"),
    *KL,
    *("--algorithm.kl_reset_every", "3"),
    *("--algorithm.epochs", "2", "--algorithm.minibatches", "2"),
    *("--algorithm.entropy_coefficient", "0.01", "--algorithm.entropy_target", "2.0"),
    *("--algorithm.entropy_step", "0.003"),
    *("--algorithm.correction", "token_truncated"),
    *("--algorithm.off_policy_delta", "0.5"),
    *("--algorithm.top_entropy", "0.8"),
    *("--algorithm.max_staleness", "4"),
    *("--algorithm.overlong_share", "0.5", "--algorithm.mask_truncated", "true"),
]
"""A run with every part on."""


def test_a_resumed_run_with_every_part_on_is_the_same_run(tmp_path) -> None:
    whole = tmp_path / "whole"
    assert main([*EVERYTHING, "--run.folder", str(whole)]) == 0
    lines = read_jsonl(whole / "metrics.jsonl")
    coefficients = [line["optimizer/entropy_coefficient"] for line in lines]
    assert len(set(coefficients)) > 2
    # Step 6 ended with a reset, step 4 did not.
    saved = {
        path.name: [load_file(path / f"{name}.safetensors") for name in ("policy", "reference")]
        for path in checkpoints(whole / "checkpoints")
    }
    same = {name: torch.equal(one["table"], other["table"]) for name, (one, other) in saved.items()}
    assert (same["step-000006"], same["step-000004"]) == (True, False)
    for kept in (1, 2, 3):
        run = copy_until(whole, tmp_path / f"from-{2 * kept}", kept)
        assert main(["train", "--resume", str(run)]) == 0
        assert_same_run(run, whole)


def copy_until(whole: Path, target: Path, kept: int) -> Path:
    """A run folder without its later checkpoints, as if it had been stopped there."""
    shutil.copytree(whole, target)
    for later in checkpoints(target / "checkpoints")[kept:]:
        shutil.rmtree(later)
    return target


OWN = """
from verigrad.algorithms import Algorithm
from verigrad.core import advantages, aggregation, losses

signs = Algorithm(
    name="signs",
    advantages=lambda s: advantages.dr_grpo(s.rewards, s.group_index).sign(),
    loss=losses.reinforce,
    aggregation=aggregation.token_mean,
)
"""


def test_a_run_with_an_algorithm_of_ones_own(tmp_path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    run = tmp_path / "run"
    arguments = ["train", str(TOY), "--run.steps", "5", "--run.folder", str(run)]
    assert main([*arguments, "--algorithm", f"{tmp_path / 'own.py'}:signs"]) == 0
    updates = [line["optimizer/updates"] for line in read_jsonl(run / "metrics.jsonl")]
    assert updates[-1] > 0
    resumed = copy_until(run, tmp_path / "again", 1)
    assert main(["train", "--resume", str(resumed)]) == 0
