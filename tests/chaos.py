"""A verifier that does harm when it is told to, and calls that tell it.

Without torch: the workers import this module to find the verifier.
"""

import math
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verigrad.types import FailureKind
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.pool import VerifierPool

WORKERS = 2
# So little memory is taken long before the processor time is, however slow the machine is.
LIMITS = Limits(cpu_seconds=0.25, wall_seconds=2.0, memory_bytes=64 * 2**20)
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
            hoard.append(bytearray(2**24))
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
