"""A task whose completions another verifier checks than its own."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from verigrad.config import VerifierConfig
from verigrad.errors import ConfigError
from verigrad.tasks.base import DividedTask, FiniteTask, Task
from verigrad.tasks.user import NoVerifier
from verigrad.types import Problem
from verigrad.verifiers import TrlReward, Verifier
from verigrad.verifiers.adapter import reference_for
from verigrad.verifiers.named import verifier_named
from verigrad.verifiers.solutions import solution_of


@dataclass(frozen=True)
class _Verified:
    task: Any
    verifier: Verifier

    @property
    def name(self) -> str:
        """That of the task."""
        name: str = self.task.name
        return name

    @property
    def solution(self) -> Callable[[Problem], str | None] | None:
        """That of the task, or the verifier's where the references are not the task's."""
        own: Callable[[Problem], str | None] | None = getattr(self.task, "solution", None)
        if own is not None and isinstance(self.verifier, TrlReward):
            return self._in_columns
        return own

    def _in_columns(self, problem: Problem) -> str | None:
        return solution_of(self.verifier, problem.reference)

    def _with_columns(self, problem: Problem) -> Problem:
        """With the columns that a TRL reward function is called with, if the verifier is one."""
        return replace(problem, reference=reference_for(self.verifier, problem))


class VerifiedTask(_Verified):
    """The problems of a task, with another verifier."""

    def __len__(self) -> int:
        """How many problems there are."""
        return len(self.task)

    def __getitem__(self, index: int, /) -> Problem:
        """The problem at an index."""
        return self._with_columns(self.task[index])


class VerifiedEndlessTask(_Verified):
    """The problems of an endless task, with another verifier."""

    def problem(self, seed: int, index: int) -> Problem:
        """The problem of a seed and an index."""
        return self._with_columns(self.task.problem(seed, index))


def with_verifier(task: Task, config: VerifierConfig) -> Task:
    """The task with the verifier that a configuration names, or as it is where none is named.

    Raises:
        ConfigError: there is no such verifier, none is named for a generator of problems, or the
            task is made of others that have their own.
    """
    if config.name is None:
        if isinstance(task.verifier, NoVerifier):
            raise ConfigError(
                f"task {task.name!r} is a generator of problems, which says nothing of how "
                "completions are checked; set verifier.name, to a built-in verifier or file.py:name"
            )
        return task
    if isinstance(task, DividedTask):
        raise ConfigError(
            f"verifier.name is {config.name!r}, but task {task.name!r} is made of others, each of "
            "which has its own verifier; leave verifier.name out"
        )
    first = task[0] if isinstance(task, FiniteTask) else task.problem(0, 0)  # type: ignore[attr-defined]
    verifier = verifier_named(config.name)
    if isinstance(verifier, TrlReward):
        from verigrad.tasks.data import DataTask

        if isinstance(task, DataTask):
            return task.checked_by(verifier)
        verifier = verifier.fitted(first)
    elif is_dataclass(task) and any(f.name == "verifier" and f.init for f in fields(task)):
        # Still the same kind of task, with everything else that it can do.
        return replace(task, verifier=verifier)  # type: ignore[type-var, return-value, unused-ignore]
    kind = VerifiedTask if isinstance(task, FiniteTask) else VerifiedEndlessTask
    return kind(task, verifier)
