"""Everything that can be found out about a task's verifier without a model."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from verigrad.checking.examples import Example
from verigrad.checking.shortcuts import Shortcut, shortcuts_of
from verigrad.tasks import Task, solution_of_problem
from verigrad.types import EQUAL_WITHIN, FULL_MARKS, Problem, Verdict
from verigrad.verifiers.runner import Report, Runner

Call = tuple[str, Any]
"""A completion and its reference."""

REPEATED = 50
"""How many references are verified twice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A completion, and what the verifier said of it."""

    what: str
    """Where it comes from, in words: a problem, a row of a file."""

    completion: str
    verdict: Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkup:
    """What was tried, and everything that is wrong."""

    references: int
    """How many references were verified."""

    unwritten: int
    """How many problems have a reference that cannot be written as a completion."""

    refused: tuple[Tried, ...]
    """The references without full marks."""

    shortcuts: int
    """How many shortcuts were tried."""

    paid: tuple[Tried, ...]
    """The shortcuts that got a reward."""

    broken: tuple[Tried, ...]
    """The shortcuts on which the verifier failed."""

    examples: int | None
    """How many labelled examples were verified; None without a file of them."""

    false_accepts: tuple[Tried, ...]
    """Examples that got more than their label says."""

    false_refusals: tuple[Tried, ...]
    """Examples that got less than their label says."""

    failed: tuple[Tried, ...]
    """Examples on which the verifier failed."""

    repeated: int
    """How many completions were verified a second time."""

    changed: tuple[Tried, ...]
    """Those whose second verdict is another one."""

    latency: dict[str, Report]
    """What the calls took, by what was verified."""

    @property
    def faults(self) -> int:
        """How many things are wrong."""
        wrong = (self.refused, self.paid, self.broken, self.false_accepts, self.false_refusals,
                 self.failed, self.changed)  # fmt: skip
        return sum(map(len, wrong))


def check_up(
    task: Task,
    problems: Sequence[Problem],
    runner: Runner,
    *,
    examples: Sequence[Example] | None = None,
    probed: int = 20,
    allowed: float = 0.0,
) -> Checkup:
    """Verify references, shortcuts and labelled examples, and some of them twice.

    Args:
        task: the task.
        problems: those of it whose references are tried.
        runner: runs the task's verifier.
        examples: completions with the reward they should get.
        probed: shortcuts are tried on so many of the problems, at most.
        allowed: the largest reward that a shortcut may get.
    """
    latency: dict[str, Report] = {}

    def verified(name: str, calls: Sequence[Call]) -> list[Verdict]:
        verdicts = runner.verify_all(calls)
        latency[name] = runner.take_report()
        return verdicts

    written = {p.id: text for p in problems if (text := solution_of_problem(task, p)) is not None}
    solved = [problem for problem in problems if problem.id in written]
    right = [(written[problem.id], problem.reference) for problem in solved]
    said = verified("references", right)
    few = spread(problems, probed)
    shortcuts = shortcuts_of(task, few)
    tempting = [(each.text, each.problem.reference) for each in shortcuts]
    answers = verified("shortcuts", tempting)
    labelled = [(each.completion, each.reference) for each in examples or ()]
    judged = verified("examples", labelled)
    again = [*right[:REPEATED], *tempting, *labelled]
    second = verified("again", again)
    sides = _compared(examples or (), judged)
    return Checkup(
        references=len(right),
        unwritten=len(problems) - len(right),
        refused=tuple(refused(solved, right, said)),
        shortcuts=len(shortcuts),
        paid=tuple(paid(shortcuts, answers, allowed)),
        broken=tuple(broken(shortcuts, answers)),
        examples=None if examples is None else len(examples),
        false_accepts=sides["accepts"],
        false_refusals=sides["refusals"],
        failed=sides["failed"],
        repeated=len(again),
        changed=tuple(_changed(again, [*said[:REPEATED], *answers, *judged], second)),
        latency={name: report for name, report in latency.items() if report.seconds},
    )


def refused(
    problems: Sequence[Problem], calls: Sequence[Call], verdicts: Sequence[Verdict]
) -> list[Tried]:
    """The references without full marks."""
    return [
        Tried(what=f"problem {problem.id!r}", completion=text, verdict=verdict)
        for problem, (text, _), verdict in zip(problems, calls, verdicts, strict=True)
        if not has_full_marks(verdict)
    ]


def _changed(
    calls: Sequence[Call], first: Sequence[Verdict], second: Sequence[Verdict]
) -> list[Tried]:
    return [
        Tried(what="a second time", completion=text, verdict=after)
        for (text, _), before, after in zip(calls, first, second, strict=True)
        if _essence(before) != _essence(after)
    ]


def spread(problems: Sequence[Problem], count: int) -> list[Problem]:
    """So many of the problems, at most, evenly from the first to the last."""
    if len(problems) <= count:
        return list(problems)
    return [problems[place * len(problems) // count] for place in range(count)]


def has_full_marks(verdict: Verdict) -> bool:
    """Whether a verdict is what a right completion gets."""
    return verdict.reward is not None and verdict.reward >= FULL_MARKS - EQUAL_WITHIN


def paid(shortcuts: Sequence[Shortcut], verdicts: Sequence[Verdict], allowed: float) -> list[Tried]:
    """The shortcuts with a reward above what is allowed, the best paid one of each kind.

    A constant is an answer to one problem and a shortcut through many: what may be right by chance
    counts only if more than half of the problems pay it, and they have different references.
    """
    by_name: dict[str, list[tuple[Shortcut, Verdict]]] = defaultdict(list)
    count: dict[str, int] = defaultdict(int)
    for each, verdict in zip(shortcuts, verdicts, strict=True):
        count[each.name] += 1
        if verdict.reward is not None and verdict.reward > allowed + EQUAL_WITHIN:
            by_name[each.name].append((each, verdict))
    return [
        _tried(*max(some, key=lambda one: one[1].reward or 0.0))
        for name, some in by_name.items()
        if not some[0][0].may_be_right or _is_blind(some, count[name])
    ]


def _is_blind(some: Sequence[tuple[Shortcut, Verdict]], tried: int) -> bool:
    references = {repr(each.problem.reference) for each, _ in some}
    return len(some) > tried / 2 and len(references) > 1


def broken(shortcuts: Sequence[Shortcut], verdicts: Sequence[Verdict]) -> list[Tried]:
    """The shortcuts on which the verifier failed, the first one of each kind."""
    found: dict[str, Tried] = {}
    for each, verdict in zip(shortcuts, verdicts, strict=True):
        if verdict.reward is None:
            found.setdefault(each.name, _tried(each, verdict))
    return list(found.values())


def _tried(shortcut: Shortcut, verdict: Verdict) -> Tried:
    what = f"{shortcut.name}, on problem {shortcut.problem.id!r}"
    return Tried(what=what, completion=shortcut.text, verdict=verdict)


def _compared(
    examples: Sequence[Example], verdicts: Sequence[Verdict]
) -> dict[str, tuple[Tried, ...]]:
    sides: dict[str, list[Tried]] = {"accepts": [], "refusals": [], "failed": []}
    for example, verdict in zip(examples, verdicts, strict=True):
        what = f"row {example.row}, labelled {example.reward:g}"
        tried = Tried(what=what, completion=example.completion, verdict=verdict)
        if verdict.reward is None:
            sides["failed"].append(tried)
        elif verdict.reward > example.reward + EQUAL_WITHIN:
            sides["accepts"].append(tried)
        elif verdict.reward < example.reward - EQUAL_WITHIN:
            sides["refusals"].append(tried)
    return {side: tuple(some) for side, some in sides.items()}


def _essence(verdict: Verdict) -> tuple[object, ...]:
    """What must be the same the second time; the words may name a time or an address."""
    return verdict.status, verdict.reward, dict(verdict.components), verdict.kind
