"""Accuracy on problems that are never trained on, with an interval, and how the rest went wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

from verigrad.core.statistics import bootstrap_interval, pass_at_k, wilson_interval
from verigrad.types import FULL_MARKS, Finish, Group, Rollout, Status


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """How some completions of held-out problems did."""

    problems: int
    """Problems with at least one scored completion."""

    completions: int
    """Scored completions; failed verifications are left out."""

    accuracy: float
    """Mean over problems of the share of completions that solve it, in [0, 1]."""

    low: float
    """Lower end of the 95 % interval over problems."""

    high: float
    """Upper end of it."""

    truncated: int
    """Completions that do not solve their problem and reached the length limit."""

    unparsable: int
    """Those that stopped, and hold no answer."""

    wrong: int
    """Those that stopped, and hold a wrong answer."""

    failed: int
    """Completions whose verification failed."""


def summarise(groups: Sequence[Group]) -> Evaluation | None:
    """Sum up judged completions; None when not one was scored.

    With one completion per problem the interval is Wilson's; with several, problems are resampled,
    because completions of one problem are not independent. Where all problems have the same share,
    resampling shows no spread, and Wilson's interval with a trial per problem stands in its place.

    Args:
        groups: one per problem.
    """
    groups_scored = [group for group in groups if group.scored]
    if not groups_scored:
        return None
    rows = [row for group in groups_scored for row in group.scored]
    shares = [sum(map(solved, group.scored)) / len(group.scored) for group in groups_scored]
    accuracy = sum(shares) / len(shares)
    if len(rows) == len(shares) or len(set(shares)) == 1:
        low, high = wilson_interval(sum(shares), len(shares))
    else:
        low, high = bootstrap_interval(shares)
    unsolved = [row for row in rows if not solved(row)]
    stopped = [row for row in unsolved if row.completion.finish is Finish.STOPPED]
    unparsable = sum(row.verdict.status is Status.UNPARSABLE for row in stopped)
    return Evaluation(
        problems=len(groups_scored),
        completions=len(rows),
        accuracy=accuracy,
        low=low,
        high=high,
        truncated=len(unsolved) - len(stopped),
        unparsable=unparsable,
        wrong=len(stopped) - unparsable,
        failed=sum(len(group.rollouts) for group in groups) - len(rows),
    )


def pass_rates(groups: Sequence[Group]) -> dict[int, float]:
    """The chance that k completions of a problem hold a solution, for k = 2, 4, 8 and so on.

    Args:
        groups: one per problem, of which those without a scored completion are left out; k is at
            most the fewest scored completions that one of the others has.
    """
    counts = [(len(each.scored), sum(map(solved, each.scored))) for each in groups if each.scored]
    fewest = min((scored for scored, _ in counts), default=0)
    ks = [2**power for power in range(1, fewest.bit_length())]
    return {k: sum(pass_at_k(n, c, k) for n, c in counts) / len(counts) for k in ks}


def solved(rollout: Rollout) -> bool:
    """Whether a completion has full marks."""
    return rollout.verdict.reward is not None and rollout.verdict.reward >= FULL_MARKS


def describe(evaluation: Evaluation) -> str:
    """One line for a person."""
    e = evaluation
    wrongs = {"truncated": e.truncated, "unparsable": e.unparsable, "wrong": e.wrong}
    parts = [f"{count} {name}" for name, count in wrongs.items() if count]
    rest = f"; not solved: {', '.join(parts)}" if parts else ""
    failed = f"; {e.failed} verifications failed and are left out" if e.failed else ""
    return (
        f"accuracy {e.accuracy:.2f} (95 % interval {e.low:.2f} to {e.high:.2f}) on "
        f"{e.problems} problems{rest}{failed}"
    )
