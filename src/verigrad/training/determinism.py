"""Is a configuration deterministic here: the same few steps twice, in fresh processes, compared."""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from verigrad.config import Config, to_toml
from verigrad.errors import (
    BadNumbersError,
    StorageError,
    TooManyFailuresError,
    UserError,
    VerigradError,
)
from verigrad.training.folder import RunFolder
from verigrad.training.records import read_lines

CLOCK = ("time/", "memory/")
"""Metrics that depend on how busy the machine is, rates among them."""

COMPARED = ("token_ids", "log_probs", "status", "reward", "finish")
"""What of a completion has to be the same; its text follows from its tokens."""

ERRORS = {
    kind.exit_code: kind
    for kind in (UserError, TooManyFailuresError, BadNumbersError, StorageError)
}
"""By exit code: what a process of the command ended with."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What came of running the same steps twice."""

    difference: str | None
    """The first difference, in words; None when there is none."""

    described: str
    """What was compared, and how it was run."""


def check_determinism(config: Config, steps: int) -> Comparison:
    """Run the first steps of a configuration twice and compare tokens, metrics and weights.

    Both runs are processes of their own with folders of their own, which are removed. Decisions
    that the first one measures are given to the second, as a resume would.

    Args:
        config: the run; its steps and its folder are replaced.
        steps: how many to make, at least 1.

    Raises:
        VerigradError: one of them did not end well, with its message.
    """
    with tempfile.TemporaryDirectory(prefix="verigrad-determinism-") as scratch:
        first = _run(config, steps, Path(scratch) / "first")
        decisions = first.read_decisions()
        threads, budget = decisions.threads, decisions.token_budget
        run = replace(config.run, threads=threads, token_budget=budget)
        same = replace(config, run=run)
        second = _run(same, steps, Path(scratch) / "second")
        difference = first_difference(first, second)
        described = (
            f"{steps} steps of {config.model.name} with {config.algorithm.preset}, twice, on "
            f"{decisions.device} (threads: {decisions.threads}); compared: tokens, log-probs, "
            "verdicts, metrics other than times and memory, and the weights (SHA-256 "
            f"{_digest(first)[:16]}...)"
        )
    return Comparison(difference=difference, described=described)


def first_difference(first: RunFolder, second: RunFolder) -> str | None:
    """The earliest difference between two runs, in words; None when there is none."""
    found = [
        *_line_differences(first.rollouts, second.rollouts, COMPARED),
        *_line_differences(first.metrics, second.metrics, ()),
    ]
    if found:
        _, words = min(found, key=lambda difference: difference[0])
        return words
    mine, other = _digest(first), _digest(second)
    return None if mine == other else f"the weights after the last step: {mine} and {other}"


def _line_differences(
    first: Path, second: Path, names: tuple[str, ...]
) -> Iterable[tuple[int, str]]:
    """The first difference between two files of records, with its step, if there is one."""
    a: Mapping[str, Any]
    b: Mapping[str, Any]
    for a, b in zip_longest(read_lines(first), read_lines(second), fillvalue={}):
        for name in names or sorted(a.keys() | b.keys()):
            if not name.startswith(CLOCK) and repr(a.get(name)) != repr(b.get(name)):
                known = a or b
                yield known["step"], _told(known, name, a.get(name), b.get(name))
                return


def _told(record: Mapping[str, Any], name: str, mine: object, other: object) -> str:
    where = f"step {record['step']}"
    if "problem" in record:
        where += f", problem {record['problem']!r}, completion {record['completion'] + 1}"
    if isinstance(mine, list) and isinstance(other, list):
        place = next(
            (i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if repr(a) != repr(b)),
            min(len(mine), len(other)),
        )
        name = f"{name}, number {place + 1}"
        mine, other = mine[place : place + 1], other[place : place + 1]
    return f"{where}, {name}: {mine!r} and {other!r}"


def _run(config: Config, steps: int, folder: Path) -> RunFolder:
    """Make the steps in a process of their own.

    Raises:
        VerigradError: it ends with something else than 0; of the kind that it ended with.
    """
    file = folder.with_suffix(".toml")
    run = replace(config.run, steps=steps, folder=str(folder))
    file.write_text(to_toml(replace(config, run=run)), encoding="utf-8")
    command = [sys.executable, "-m", "verigrad", "train", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        kind = ERRORS.get(done.returncode, VerigradError)
        raise kind(last.removeprefix("verigrad: error: "))
    return RunFolder(root=folder)


def _digest(run: RunFolder) -> str:
    """One SHA-256 of the names and the bytes of the trained policy's tensors."""
    digest = hashlib.sha256()
    for path in sorted(run.final.glob("*.safetensors")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
