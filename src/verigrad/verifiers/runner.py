"""What runs a verifier on many completions, and reports what happened: here, or in a pool."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from verigrad.types import FailureKind, Status, Verdict
from verigrad.verifiers.boundary import Verifier, verify


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a runner did over some time.

    Example: of 16 calls one took too long, so one worker was started again:
        Report(seconds=(0.01, ..., 10.2), statuses={SCORED: 15, FAILED: 1},
               failures={TIMEOUT: 1}, restarts=(0.3,))
    """

    seconds: tuple[float, ...]
    """Of each call, from its beginning to its verdict."""

    statuses: Mapping[Status, int]
    """How many verdicts there were of each; those that did not occur are left out."""

    failures: Mapping[FailureKind, int]
    """How many failed verdicts there were of each kind; those that did not occur are left out."""

    restarts: tuple[float, ...]
    """Seconds that it took to replace a worker, for each that was."""

    def percentile(self, share: float) -> float:
        """The seconds that this share of the calls took at most; 0 without calls.

        Args:
            share: from 0 to 1; 0.5 is the median.
        """
        ordered = sorted(self.seconds)
        if not ordered:
            return 0.0
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def times(self) -> dict[str, float]:
        """Seconds by name: median, p95 and max of a call, and of all restarts together.

        Without calls the table is empty.
        """
        if not self.seconds:
            return {}
        shares = {"median": 0.5, "p95": 0.95, "max": 1.0}
        return {name: self.percentile(share) for name, share in shares.items()} | {
            "restarts": sum(self.restarts)
        }


class Pending(Protocol):
    """A verdict that is on its way."""

    def result(self) -> Verdict:
        """The verdict, once it is there."""
        ...


class Runner(Protocol):
    """Runs one verifier."""

    def submit(self, completion: str, reference: Any) -> Pending:
        """Have a completion verified, beside other work where there are workers for it."""
        ...

    def verify_all(self, calls: Iterable[tuple[str, Any]]) -> list[Verdict]:
        """The verdicts on completions and their references, in the same order."""
        ...

    def take_report(self) -> Report:
        """What happened since this was last asked."""
        ...


class Records:
    """What there is to report, gathered under a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: list[float] = []
        self._verdicts: list[Verdict] = []
        self._restarts: list[float] = []

    def call(self, verdict: Verdict, seconds: float) -> None:
        """Note a call."""
        with self._lock:
            self._verdicts.append(verdict)
            self._seconds.append(seconds)

    def restart(self, seconds: float) -> None:
        """Note that a worker was replaced."""
        with self._lock:
            self._restarts.append(seconds)

    def take(self) -> Report:
        """What was noted since this was last asked."""
        with self._lock:
            seconds, self._seconds = self._seconds, []
            verdicts, self._verdicts = self._verdicts, []
            restarts, self._restarts = self._restarts, []
        return Report(
            seconds=tuple(seconds),
            statuses=Counter(verdict.status for verdict in verdicts),
            failures=Counter(verdict.kind for verdict in verdicts if verdict.kind is not None),
            restarts=tuple(restarts),
        )


@dataclass(frozen=True, slots=True)
class _Later:
    """A call that is made when its verdict is asked for."""

    verify: Callable[[str, Any], Verdict]
    completion: str
    reference: Any

    def result(self) -> Verdict:
        """Make the call."""
        return self.verify(self.completion, self.reference)


class InProcess:
    """Runs a verifier in this process, one call after another, without limits."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._records = Records()

    def submit(self, completion: str, reference: Any) -> Pending:
        """Have a completion verified when its verdict is wanted: there is no one else to do it."""
        return _Later(self._verify, completion, reference)

    def verify_all(self, calls: Iterable[tuple[str, Any]]) -> list[Verdict]:
        """The verdicts on completions and their references, in the same order."""
        return [self._verify(completion, reference) for completion, reference in calls]

    def _verify(self, completion: str, reference: Any) -> Verdict:
        began = time.monotonic()
        verdict = verify(self._verifier, completion, reference)
        self._records.call(verdict, time.monotonic() - began)
        return verdict

    def take_report(self) -> Report:
        """What happened since this was last asked."""
        return self._records.take()
