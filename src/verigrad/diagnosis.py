"""Metrics -> findings: what is wrong with a run, in words, with the number behind it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Metrics = Mapping[str, int | float | None]
"""One step's metrics: ``area/name`` to a number, or None where there is no data."""

WINDOW = 10
"""A finding looks at this many steps, the latest ones."""

FEW_WITH_SIGNAL = 0.1
MANY_TRUNCATED = 0.5


class Cause(StrEnum):
    """What a finding is about."""

    NO_SIGNAL = "no_signal"
    TRUNCATION = "truncation"
    FAILURES = "failures"
    REMADE = "remade"
    BAD_NUMBERS = "bad_numbers"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that keeps a run from learning, or explains why it does not."""

    cause: Cause
    """What it is about."""

    step: int
    """The step at which it was seen."""

    number: float
    """The share behind it, in [0, 1]."""

    message: str
    """What was seen, why it matters, and what to do."""


def findings(recent: Sequence[Metrics]) -> list[Finding]:
    """Look at the latest steps.

    Args:
        recent: the last WINDOW steps' metrics, oldest first; fewer at the start of a run.

    Returns:
        What is found, at most one of each cause. Signal and truncation need a full window.
    """
    found = [_failures(recent), _bad_numbers(recent)]
    if len(recent) >= WINDOW:
        found += [_no_signal(recent), _truncation(recent)]
    return [finding for finding in found if finding is not None]


def remade_differently(step: int, others: Sequence[Mapping[str, Any]], made: int) -> Finding:
    """A step that a resume made again did not come out as it had been.

    Args:
        step: the step.
        others: the lines that differ from those set aside, at least one.
        made: how many lines were made again.
    """
    first = others[0]
    place = "the metrics" if "purpose" not in first else (
        f"completion {first['completion']} of problem {first['problem']!r} ({first['purpose']})"
    )  # fmt: skip
    message = (
        f"{len(others)} of {made} lines that the resume made again differ from those set aside in "
        f"*.set-aside.jsonl, first {place}; a verdict that depends on time or chance explains it, "
        "or something in docs/resume.md that weakens exactness; else this run is not reproducible"
    )
    return Finding(cause=Cause.REMADE, step=step, number=len(others) / made, message=message)


def _no_signal(recent: Sequence[Metrics]) -> Finding | None:
    groups = _total(recent, "groups/total")
    share = _total(recent, "groups/with_signal") / groups
    if share > FEW_WITH_SIGNAL:
        return None
    right = _total(recent, "groups/all_right") / groups
    wrong = _total(recent, "groups/all_wrong") / groups
    if right + wrong < 0.5:
        why = "they tie at a reward in between: let the verifier tell better completions apart"
    elif right > wrong:
        why = f"{right:.0%} of them are all right: the task is solved, or make it harder"
    else:
        why = f"{wrong:.0%} of them are all wrong: use easier problems or more completions"
    message = (
        f"{share:.0%} of the groups of the last {len(recent)} steps have a signal; completions of "
        f"a problem that all get the same reward teach nothing, and {why}"
    )
    return _finding(recent, Cause.NO_SIGNAL, share, message)


def _truncation(recent: Sequence[Metrics]) -> Finding | None:
    share = _total(recent, "completions/truncated") / _total(recent, "completions/total")
    if share < MANY_TRUNCATED:
        return None
    message = (
        f"{share:.0%} of the completions of the last {len(recent)} steps reached the length limit; "
        "a cut answer is seldom right, so raise sampling.max_new_tokens or ask for short answers"
    )
    return _finding(recent, Cause.TRUNCATION, share, message)


def _failures(recent: Sequence[Metrics]) -> Finding | None:
    failed = _total(recent, "verdicts/failed")
    if not failed:
        return None
    share = failed / _total(recent, "completions/total")
    message = (
        f"{int(failed)} verifications ({share:.1%}) of the last {len(recent)} steps failed and "
        "were left out; rollouts.jsonl holds each reason under detail"
    )
    return _finding(recent, Cause.FAILURES, share, message)


def _bad_numbers(recent: Sequence[Metrics]) -> Finding | None:
    steps = [metrics["step"] for metrics in recent if metrics["updates/skipped"]]
    if not steps:
        return None
    message = (
        f"in {len(steps)} of the last {len(recent)} steps an update was skipped because its loss "
        f"or gradient was not finite; verigrad replay RUN {steps[-1]} says which number it was"
    )
    return _finding(recent, Cause.BAD_NUMBERS, len(steps) / len(recent), message)


def _finding(recent: Sequence[Metrics], cause: Cause, number: float, message: str) -> Finding:
    return Finding(cause=cause, step=int(recent[-1]["step"] or 0), number=number, message=message)


def _total(recent: Sequence[Metrics], key: str) -> float:
    return sum(value for metrics in recent if (value := metrics[key]) is not None)
