"""An algorithm of one's own is held to what its functions have to give, with errors in words."""

from pathlib import Path

import pytest
import torch
from builders import make_algorithm, make_group, make_table
from running import TOY
from steps import batch_by

from verigrad.algorithms import Algorithm
from verigrad.cli import main
from verigrad.errors import ConfigError
from verigrad.training.step import accumulate

OWN = """
from dataclasses import replace

import torch

from verigrad.algorithms import Algorithm, Divergence
from verigrad.core import advantages, aggregation, losses

plain = Algorithm(
    name="plain",
    advantages=lambda s: advantages.dr_grpo(s.rewards, s.group_index),
    loss=losses.reinforce,
    aggregation=aggregation.token_mean,
)


def by_row(new, old, a, mask):
    return -(a * new).sum(dim=1)


def by_row_kept(new, old, a, mask):
    return by_row(new, old, a, mask).unsqueeze(1)


row = replace(plain, loss=by_row)
kept = replace(plain, loss=by_row_kept)
whole = replace(plain, loss=lambda new, old, a, mask: -(a * new).sum())
flat = replace(plain, loss=lambda new, old, a, mask: -a)
odd = replace(plain, loss=lambda new, old, a, mask: {}["rho"])
weights = replace(plain, aggregation=lambda mask, group: 1 / mask.sum(dim=1).double())
short = replace(plain, advantages=lambda s: s.rewards[1:])
listed = replace(plain, advantages=lambda s: s.rewards.tolist())
column = replace(plain, advantages=lambda s: s.rewards.unsqueeze(1))
corrected = replace(plain, correction=lambda old, sampled, mask: torch.ones(len(mask)))
held = replace(plain, divergence=Divergence(beta=1.0, estimator=lambda *all: all[0].sum(dim=1)))
long = replace(plain, punish_length=lambda lengths: torch.zeros(()))
no_function = replace(plain, loss=3)
"""

SQUARE = [make_group(0, [((1, 2, 0), 1.0), ((3, 0), 0.0), ((2, 2, 2), 0.25)])]
"""As many rows as tokens, so that one number per row could pass for one per token."""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def gradient(algorithm: Algorithm) -> torch.Tensor:
    policy = make_table(problems=1, answers=4, positions=3)
    batch = batch_by(policy, algorithm, SQUARE, reference=policy)
    accumulate(policy, batch, algorithm, temperature=1.0, token_budget=99)
    assert policy.table.grad is not None
    return policy.table.grad


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("row", r"loss of .* shape \[3\]; expected \[B, T\] = \[3, 3\] or \[B, 1\] = \[3, 1\]"),
        ("whole", r"loss of algorithm 'plain' gave a tensor of shape \[\]; expected"),
        ("flat", "loss of algorithm 'plain' gave a tensor without a gradient"),
        ("odd", r"loss of algorithm 'plain' fails: KeyError: 'rho' \(.*own\.py:29\)"),
        ("weights", r"aggregation of .* shape \[3\]; expected \[B, T\] = \[3, 3\]"),
        ("short", r"advantages of .* shape \[2\]; expected \[B\] = \[3\] or"),
        ("listed", "advantages of algorithm 'plain' gave a list; expected a tensor"),
        ("corrected", r"correction of .* shape \[3\]; expected \[B, T\] = \[3, 3\]"),
        ("held", r"divergence\.estimator of .* shape \[3\]; expected \[B, T\] = \[3, 3\] or"),
        ("long", r"punish_length of .* shape \[\]; expected \[B\] = \[3\]"),
        ("no_function", "loss of algorithm 'plain' is a int; expected a function"),
    ],
)
def test_a_function_that_gives_something_else_is_named(file: Path, name: str, found: str) -> None:
    with pytest.raises(ConfigError, match=rf"own\.py: {found}"):
        gradient(make_algorithm(f"{file}:{name}"))


def test_a_value_of_the_row_may_be_given_once(file: Path) -> None:
    assert gradient(make_algorithm(f"{file}:kept")).any()
    per_row = make_algorithm("rloo", advantage="dr_grpo", aggregation="token_mean")
    assert torch.equal(gradient(make_algorithm(f"{file}:plain")), gradient(per_row))
    assert gradient(make_algorithm(f"{file}:column")).any()


def test_a_run_says_it_in_one_line(file: Path, tmp_path, capsys) -> None:
    run = ["train", str(TOY), "--run.folder", str(tmp_path / "run")]
    assert main([*run, "--algorithm", f"{file}:odd"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"verigrad: error: {file}: loss of algorithm 'plain' fails: KeyError")
