"""Thousands of calls of a verifier of which every seventh or so goes wrong."""

import math
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from verigrad.types import FailureKind, Status
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.pool import VerifierPool

pytest.importorskip("cloudpickle")

WORKERS = 2
LIMITS = Limits(cpu_seconds=0.25, wall_seconds=2.0, memory_bytes=200 * 2**20)
SHARES = {"raise": 0.05, "hang": 0.05, "kill": 0.02, "hog": 0.02}
KINDS = {
    "raise": FailureKind.EXCEPTION,
    "hang": FailureKind.TIMEOUT,
    "kill": FailureKind.DIED,
    "hog": FailureKind.MEMORY,
}


def check(completion: str, reference: Any) -> float:
    """Some honest work, or what the completion says."""
    if completion == "raise":
        raise ValueError("as it was told")
    while completion == "hang":
        pass
    if completion == "kill":
        os.kill(os.getpid(), 9)
    if completion == "hog":
        hoard = []
        while True:
            hoard.append(bytearray(2**27))
    return float(sum(math.isqrt(n) for n in range(5000)) > 0 and completion == str(reference))


@dataclass(frozen=True)
class Timed:
    verdicts: list[Any]
    seconds: float
    restarts: tuple[float, ...]


def timed(calls: Sequence[tuple[str, int]]) -> Timed:
    with VerifierPool(check, workers=WORKERS, limits=LIMITS) as pool:
        began = time.monotonic()
        verdicts = pool.verify_all(calls)
        seconds = time.monotonic() - began
        return Timed(verdicts, seconds, pool.take_report().restarts)


def planned(count: int) -> list[str]:
    """What each call is to do, in an order that is the same every time."""
    plan = [what for what, share in SHARES.items() for _ in range(round(share * count))]
    plan += ["answer"] * (count - len(plan))
    random.Random(5).shuffle(plan)
    return plan


@pytest.mark.parametrize("count", [200, pytest.param(3000, marks=pytest.mark.long)])
def test_every_outcome_is_right_and_in_time_whatever_happens_beside_it(count: int) -> None:
    plan = planned(count)
    answers = [(str(number), number if number % 3 else -1) for number in range(count)]
    calls = [a if what == "answer" else (what, 0) for what, a in zip(plan, answers, strict=True)]
    clean = timed(answers)
    chaos = timed(calls)

    for place, (what, verdict) in enumerate(zip(plan, chaos.verdicts, strict=True)):
        if what == "answer":
            assert verdict.status is Status.SCORED
            assert verdict == clean.verdicts[place]
            assert verdict.reward == (1.0 if place % 3 else 0.0)
        else:
            assert (verdict.status, verdict.kind) == (Status.FAILED, KINDS[what])

    done = Counter(plan)
    replaced = done["hang"] + done["kill"] + done["hog"]
    # The last calls may leave a worker dead that nobody needed again.
    assert replaced - WORKERS <= len(chaos.restarts) <= replaced
    hangs = done["hang"] * LIMITS.cpu_seconds / WORKERS
    allowed = 2 * clean.seconds + hangs + sum(chaos.restarts) + LIMITS.wall_seconds
    assert chaos.seconds <= allowed
    assert workers_of_this_process() == []


def workers_of_this_process() -> list[str]:
    """The worker processes that are children of this one."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = file.read_text().rpartition(")")[2].split()[1]
            command = (file.parent / "cmdline").read_text()
        except OSError:
            continue
        if parent == str(os.getpid()) and "verigrad.verifiers.worker" in command:
            found.append(command)
    return found
