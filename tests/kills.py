"""Runs that end as if their machine had: a process kills itself at the n-th call of a function.

Used by the tests and by ``benchmarks/kills.py``. The processes and the kills are real; only the
moment is chosen here.
"""

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from running import TOY, assert_same_run, command, processes, write_tiny_run

from verigrad.engines import local
from verigrad.training import checkpoint, judging, records, step, trainer


class Moment(NamedTuple):
    """A function, and whether the process dies before it, after it, or with half its work done."""

    owner: Any
    name: str
    when: str = "before"


MOMENTS = {
    "while generating": Moment(local, "_choose"),
    "after verifying": Moment(judging.Judge, "groups", "after"),
    "between passes of an update": Moment(step, "loss_of"),
    "before the optimiser steps": Moment(torch.optim.AdamW, "step"),
    "after the optimiser has stepped": Moment(torch.optim.AdamW, "step", "after"),
    "between updates": Moment(trainer, "update", "after"),
    "in half a line of metrics or rollouts": Moment(records.JsonLines, "_append", "half"),
    "while copying the state": Moment(checkpoint.Snapshot, "copied"),
    "while writing a file of a checkpoint": Moment(checkpoint, "save_file", "after"),
    "while writing the manifest": Moment(checkpoint, "_description"),
    "around the naming of a checkpoint": Moment(checkpoint, "flush"),
    "before old checkpoints are removed": Moment(checkpoint, "_prune"),
}

EVENTFUL = [
    *("--algorithm.minibatches", "2"),
    *("--algorithm.epochs", "2"),
    *("--algorithm.kl", "k3"),
    *("--algorithm.kl-beta", "0.05"),
    *("--algorithm.kl-reset-every", "3"),
    *("--algorithm.entropy-coefficient", "0.01"),
    *("--algorithm.entropy-target", "1.0"),
    *("--algorithm.entropy-step", "0.001"),
    *("--verifier.workers", "2"),
]
"""Several updates per batch, resets of the reference, a steered bonus, and worker processes."""


def table(folder: Path) -> list[str]:
    """Arguments of a run of a table, in several passes per update."""
    folder.mkdir(exist_ok=True)
    return [
        str(TOY),
        *EVENTFUL,
        *("--run.steps", "60"),
        *("--run.token-budget", "4"),
        *("--task.held-out", "0.3"),
        *("--evaluation.every", "7"),
        *("--checkpoint.every", "4"),
    ]


def language_model(folder: Path) -> list[str]:
    """Arguments of a run of a tiny language model, which it writes there."""
    config = write_tiny_run(folder)
    return [str(config), *EVENTFUL, "--run.steps", "12", "--run.token-budget", "40"]


def undisturbed(folder: Path, arguments: list[str]) -> dict[str, int]:
    """Make a run that nothing disturbs; how often each moment came."""
    life = processes.Process(target=_counted, args=(folder, ["train", *arguments]))
    life.start()
    life.join()
    assert life.exitcode == 0, (folder / "err").read_text()
    return json.loads((folder / "moments.json").read_text())


def killed(
    folder: Path, arguments: list[str], moments: dict[str, int], kills: int, chance: random.Random
) -> list[str]:
    """Make the same run, killed again and again and then left alone.

    Args:
        folder: where its output and its folder ``run`` go.
        arguments: of the run.
        moments: how often each comes in an undisturbed run.
        kills: how many.
        chance: chooses the moments.

    Returns:
        The moments it died at. A run that came to its end before a moment came back is over.
    """
    died = []
    for number in range(kills):
        resumes = (folder / "run" / "environment.json").exists()
        what = ["--resume", "run"] if resumes else arguments
        moment = chance.choice(list(moments))
        # Early enough that every life has a share of the run left.
        call = 1 + chance.randrange(max(1, moments[moment] // (2 * kills)))
        life = processes.Process(target=_short, args=(folder, ["train", *what], moment, call))
        life.start()
        life.join()
        if life.exitcode == 0:
            return died
        assert life.exitcode == -signal.SIGKILL, (number, moment, (folder / "err").read_text())
        died.append(moment)
    last = processes.Process(target=command, args=(folder, ["train", "--resume", "run"]))
    last.start()
    last.join()
    assert last.exitcode == 0, (folder / "err").read_text()
    return died


def kill_and_compare(
    case: Callable[[Path], list[str]], folder: Path, kills: int, seed: int
) -> list[str]:
    """Make a run of a case twice, once killed, and hold both equal; the moments it died at."""
    whole, other = folder / "whole", folder / "killed"
    other.mkdir(parents=True)
    arguments = [*case(folder), "--run.folder", "run"]
    whole.mkdir()
    moments = undisturbed(whole, arguments)
    died = killed(other, arguments, moments, kills, random.Random(seed))
    assert_same_run(other / "run", whole / "run")
    return died


def _counted(folder: Path, arguments: list[str]) -> None:
    counts = dict.fromkeys(MOMENTS, 0)

    def count(name: str) -> None:
        counts[name] += 1

    for name in MOMENTS:
        _at(name, lambda name=name: count(name))
    try:
        command(folder, arguments)
    finally:
        (folder / "moments.json").write_text(json.dumps(counts))


def _short(folder: Path, arguments: list[str], moment: str, call: int) -> None:
    left = [call]

    def die_in_time() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _at(moment, die_in_time)
    command(folder, arguments)


def _at(name: str, happen: Callable[[], None]) -> None:
    """Have something happen at a moment."""
    owner, function, when = MOMENTS[name]
    made = getattr(owner, function)

    def replaced(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            happen()
        if when == "half":
            lines, data = arguments
            made(lines, data[: len(data) // 2])
            happen()
            return made(lines, data[len(data) // 2 :])
        done = made(*arguments, **options)
        if when == "after":
            happen()
        return done

    setattr(owner, function, replaced)
