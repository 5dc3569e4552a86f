"""What is measured at the start of a run to choose how it runs: made once, recorded, reused.

The same configuration, seed, decisions and machine give the same bits; a resume therefore takes
the decisions of its run instead of measuring again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from verigrad.config.fields import MOST_THREADS
from verigrad.machine import cores
from verigrad.policies.precision import PRECISIONS, Precision


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """The choices that change the bits of a run, though not its meaning."""

    threads: int
    """CPU threads of torch."""

    token_budget: int
    """Most tokens in one pass."""

    shares_prompts: bool
    """Whether a prompt's work is shared by its completions."""

    device: str
    """Where the policy lives."""

    precision: Precision
    """What the layers of a language model compute in; a table is float32."""

    def __post_init__(self) -> None:
        """Refuse what is none: a file that holds decisions may be damaged.

        Raises:
            ValueError: a value is of another type, or no number of threads or tokens.
        """
        if not (
            type(self.threads) is int
            and 1 <= self.threads <= MOST_THREADS
            and type(self.token_budget) is int
            and self.token_budget >= 1
            and type(self.shares_prompts) is bool
            and type(self.device) is str
            and self.precision in PRECISIONS
        ):
            raise ValueError(f"{self} has a value that is none")


def choose_threads(work: Callable[[], object]) -> tuple[int, str]:
    """Measure a piece of the run's own work with each number of threads and take the fastest.

    On busy machines two threads can be ten times slower than one, because they spin while they
    wait for each other; on quiet ones they are up to twice as fast.

    Args:
        work: what to time; called several times.

    Returns:
        The number of threads, which is set, and a sentence that says what was measured.
    """
    candidates = sorted({1, *(2**power for power in range(1, 7) if 2**power <= cores()), cores()})
    seconds = {threads: _time(work, threads) for threads in candidates}
    best = min(candidates, key=lambda threads: seconds[threads])
    torch.set_num_threads(best)
    measured = ", ".join(f"{threads}: {seconds[threads]:.2f} s" for threads in candidates)
    return best, f"{best} of {cores()} CPU threads is fastest here (measured {measured})"


def choose_device(name: str) -> str:
    """The device that a configuration names; "auto" is a GPU where there is one."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def choose_precision(name: Precision | Literal["auto"], device: str) -> Precision:
    """The precision that a configuration names; "auto" is bfloat16 on a GPU."""
    if name != "auto":
        return name
    return "bfloat16" if device.startswith("cuda") else "float32"


def _time(work: Callable[[], object], threads: int) -> float:
    """The best of two runs after a warm-up, in seconds."""
    torch.set_num_threads(threads)
    work()
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
