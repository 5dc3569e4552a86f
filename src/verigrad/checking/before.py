"""The part of the checkup that costs nothing, before the first step of a run."""

from collections.abc import Sequence

from verigrad.checking.checkup import broken, has_full_marks, paid, spread
from verigrad.checking.shortcuts import shortcuts_of
from verigrad.config import VerifierConfig
from verigrad.errors import TaskError
from verigrad.tasks import Split, Task, by_part, first_problems, solution_of_problem
from verigrad.types import Problem
from verigrad.verifiers.opening import Opened

REFERENCES = 8
"""How many problems' references are tried."""

PROBED = 3
"""How many of those shortcuts are tried on."""


def try_out(
    task: Task, sides: Split, seed: int, verifier: Opened, config: VerifierConfig
) -> list[str]:
    """Try a few references and the shortcuts on a few problems, of each part of a mixture.

    Args:
        task: the task.
        sides: its problems, of which those to train on are tried.
        seed: of the run; decides what is drawn first.
        verifier: the task's, ready to run.
        config: says whether anything is tried at all.

    Returns:
        Warnings, each a line: what is paid without an answer, and on what the verifier fails.

    Raises:
        TaskError: a reference does not get full marks.
    """
    if config.check == "off":
        return []
    return [
        warning
        for part, own in by_part(task, sides)
        for warning in _try_out(
            part, spread(first_problems(own.training, seed), REFERENCES), verifier
        )
    ]


def _try_out(task: Task, some: Sequence[Problem], verifier: Opened) -> list[str]:
    """The warnings of a task, or of one part of a mixture."""
    warnings = _references(task, some, verifier)
    few = spread(some, PROBED)
    shortcuts = shortcuts_of(task, few)
    calls = [(each.text, each.problem.reference) for each in shortcuts]
    verdicts = verifier.runner.verify_all(calls)
    verifier.runner.take_report()
    warnings += [
        f"the verifier pays {tried.verdict.reward:g} for {tried.what}: {tried.completion[:60]!r}"
        for tried in paid(shortcuts, verdicts, allowed=0.0)
    ]
    return warnings + [
        f"the verifier fails on {tried.what}: {tried.verdict.detail}"
        for tried in broken(shortcuts, verdicts)
    ]


def _references(task: Task, problems: Sequence[Problem], verifier: Opened) -> list[str]:
    """Refuse a reference that is judged wrong; one on which the verifier fails is a warning.

    A failure is no judgement; how many of them end a run is ``verifier.max_failures``.
    """
    written = [(problem, solution_of_problem(task, problem)) for problem in problems]
    tried = [(problem, text) for problem, text in written if text is not None]
    verdicts = verifier.runner.verify_all([(text, p.reference) for p, text in tried])
    warnings = []
    for (problem, text), verdict in zip(tried, verdicts, strict=True):
        where = f"the reference of problem {problem.id!r}, written as {text[:60]!r}"
        if verdict.reward is None:
            warnings.append(f"the verifier fails on {where}: {verdict.detail}")
        elif not has_full_marks(verdict):
            raise TaskError(
                f"task {task.name!r}: the verifier gives {verdict.reward:g} to {where} "
                f"({verdict.detail or verdict.status}); a right completion must get 1, or there is "
                "nothing to learn towards; mend the verifier or the reference, give the task a "
                'solution(problem) that writes one, or set verifier.check = "off"'
            )
    return warnings
