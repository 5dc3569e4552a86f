"""A task whose completions another verifier checks than its own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from verigrad.config import VerifierConfig
from verigrad.tasks.base import Task
from verigrad.types import Problem
from verigrad.verifiers import TrlReward, Verifier
from verigrad.verifiers.named import verifier_named


@dataclass(frozen=True)
class VerifiedTask:
    """The problems of a task, with another verifier."""

    task: Task
    verifier: Verifier

    @property
    def name(self) -> str:
        """That of the task."""
        return self.task.name

    @property
    def solution(self) -> Callable[[Problem], str | None] | None:
        """That of the task; none where the references are other ones than the task's."""
        if isinstance(self.verifier, TrlReward):
            return None
        return getattr(self.task, "solution", None)

    def __len__(self) -> int:
        """How many problems there are."""
        return len(self.task)

    def __getitem__(self, index: int, /) -> Problem:
        """The problem at an index, with the columns that a TRL reward function is called with."""
        problem = self.task[index]
        if not isinstance(self.verifier, TrlReward):
            return problem
        return replace(problem, reference=columns_of(problem, self.verifier.column))


def with_verifier(task: Task, config: VerifierConfig) -> Task:
    """The task with the verifier that a configuration names, or as it is where none is named.

    Raises:
        ConfigError: there is no such verifier.
    """
    if config.name is None:
        return task
    verifier = verifier_named(config.name)
    if isinstance(verifier, TrlReward):
        verifier = replace(verifier, conversational=not isinstance(task[0].prompt, str))
    return VerifiedTask(task, verifier)


def columns_of(problem: Problem, column: str) -> dict[str, Any]:
    """What a data set for TRL would hold of a problem: its prompt, its reference, its metadata.

    Args:
        problem: any.
        column: the name of the column for a reference that is not a table of columns itself.
    """
    reference = problem.reference
    columns = reference if isinstance(reference, dict) else {column: reference}
    prompt = problem.prompt if isinstance(problem.prompt, str) else list(problem.prompt)
    return {**problem.metadata, **columns, "prompt": prompt}
