"""A checkup in words."""

from collections.abc import Sequence

from verigrad.checking.checkup import Checkup, Tried
from verigrad.verifiers.runner import Report
from verigrad.verifiers.sandbox.check import Checked

SHOWN = 10
"""Of one kind of fault at most so many are shown; the rest are counted."""


def describe(checkup: Checkup) -> str:
    """What was tried, what is wrong, and what it took."""
    full = checkup.references - len(checkup.refused)
    unwritten = f"; {checkup.unwritten} cannot be written as one" if checkup.unwritten else ""
    lines = [
        f"references  {full} of {checkup.references} get full marks{unwritten}",
        *_rows(checkup.refused),
        f"shortcuts   {_number(len(checkup.paid))} paid, of {checkup.shortcuts} that were tried",
        *_rows(checkup.paid),
        *_rows(checkup.broken),
    ]
    if checkup.examples is not None:
        lines += [
            f"examples    {checkup.examples} rows: {len(checkup.false_accepts)} false accepts, "
            f"{len(checkup.false_refusals)} false refusals, {len(checkup.failed)} failed",
            *_rows([*checkup.false_accepts, *checkup.false_refusals, *checkup.failed]),
        ]
    same = checkup.repeated - len(checkup.changed)
    lines += [
        f"repeated    {same} of {checkup.repeated} verdicts are the same a second time",
        *_rows(checkup.changed),
        *_latencies(checkup.latency),
    ]
    wrong = checkup.faults
    lines.append(f"{wrong} thing{'' if wrong == 1 else 's'} wrong" if wrong else "nothing is wrong")
    return "\n".join(lines)


def describe_sandbox(checked: Checked) -> str:
    """What a sandbox stopped, attack by attack."""
    width = max(len(finding.attack) for finding in checked.findings)
    lines = [f"sandbox {checked.name} ({checked.strength})"]
    for finding in checked.findings:
        word = "stopped" if finding.stopped else "NOT STOPPED"
        lines.append(f"  {finding.attack:<{width}}  {word:<11}  {finding.detail}")
    return "\n".join(lines)


def _number(count: int) -> str:
    return str(count) if count else "none"


def _rows(tried: Sequence[Tried]) -> list[str]:
    lines = [f"  {_row(each)}" for each in tried[:SHOWN]]
    if len(tried) > SHOWN:
        lines.append(f"  and {len(tried) - SHOWN} more")
    return lines


def _row(tried: Tried) -> str:
    verdict = tried.verdict
    got = "failed" if verdict.reward is None else f"{verdict.reward:g}"
    return (
        f"{tried.what}: {tried.completion[:60]!r} gets {got} ({verdict.detail or verdict.status})"
    )


def _latencies(reports: dict[str, Report]) -> list[str]:
    """A table of what calls took, in milliseconds."""
    lines = [f"{'latency':<12}{'calls':>7}{'median':>12}{'95 %':>12}{'longest':>12}"]
    for name, report in reports.items():
        shares = "".join(f"{1000 * report.percentile(s):>9.2f} ms" for s in (0.5, 0.95, 1.0))
        lines.append(f"  {name:<10}{len(report.seconds):>7}{shares}")
    return lines
