"""Every dataset of reasoning-gym as a task, each checked by its own scoring function."""

import contextlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from verigrad.config.checks import did_you_mean
from verigrad.config.schema import REASONING_GYM
from verigrad.errors import TaskError
from verigrad.hashing import stable_hash
from verigrad.types import Problem, Verdict
from verigrad.verifiers.answer import NoAnswer, final_text

BLOCK = 100
"""Problems that are made with one seed; some datasets prepare all of them at once."""

LARGEST_SEED = 2**31
"""Some datasets seed generators that take no larger number."""


@dataclass(frozen=True, slots=True)
class ReasoningGymTask:
    """A dataset of reasoning-gym, with the options that it has by default.

    Its problems are made without end; what the model is asked is the dataset's question as it is.
    """

    dataset: str
    """The dataset's name: "chain_sum"."""

    @property
    def name(self) -> str:
        """``reasoning_gym:`` and the dataset's name."""
        return f"{REASONING_GYM}{self.dataset}"

    @property
    def verifier(self) -> "ReasoningGymScore":
        """The dataset's own scoring function."""
        return ReasoningGymScore(self.dataset)

    def problem(self, seed: int, index: int) -> Problem:
        """The problem of a seed and an index.

        Raises:
            TaskError: the dataset has none, and says why.
        """
        block, place = divmod(index, BLOCK)
        try:
            with _silence():
                made = _dataset(self.dataset, stable_hash(self.name, seed, block) % LARGEST_SEED)
                entry = made[place]
        except Exception as error:
            raise TaskError(
                f"{self.name} cannot make problem {index}: {type(error).__name__}: {error}"
            ) from error
        question = str(entry["question"])
        return Problem(
            id=f"{self.name}/{stable_hash(question):016x}",
            prompt=question,
            reference=dict(entry),
            content=f"{self.name}/{' '.join(question.casefold().split())}",
            metadata={"answer": entry["answer"]},
        )


@dataclass(frozen=True, slots=True)
class ReasoningGymScore:
    """A dataset's own score, from 0 to 1, of what stands in ``<answer>`` or else of all the text.

    Reasoning up to ``</think>`` is left out. An empty answer is unparsable.
    """

    dataset: str

    def __call__(self, completion: str, reference: Mapping[str, Any]) -> Verdict:
        """Score one completion against the dataset's entry."""
        try:
            text = final_text(completion)
        except NoAnswer as reason:
            return Verdict.unparsable(str(reason))
        _, tag, answer = text.rpartition("<answer>")
        answer = answer.partition("</answer>")[0].strip() if tag else text.strip()
        if not answer:
            return Verdict.unparsable("the answer is empty")
        with _silence():
            score = float(_dataset(self.dataset, 0).score_answer(answer, dict(reference)))
        return Verdict.scored(score, f"the answer is {answer!r:.80}")


def reasoning_gym_task(dataset: str) -> ReasoningGymTask:
    """The task of a dataset of reasoning-gym.

    Raises:
        TaskError: the package is not installed, or has no such dataset.
    """
    names = reasoning_gym_names()
    if dataset not in names:
        raise TaskError(
            f"reasoning_gym has no dataset {dataset!r}; {did_you_mean(dataset, names)}there are "
            f"{len(names)}, which `verigrad tasks reasoning_gym` lists"
        )
    return ReasoningGymTask(dataset)


def reasoning_gym_names() -> tuple[str, ...]:
    """The names of all datasets.

    Raises:
        TaskError: the package is not installed.
    """
    return tuple(sorted(_package("reasoning_gym.factory").DATASETS))


@lru_cache(maxsize=16)
def _dataset(name: str, seed: int) -> Any:
    return _package("reasoning_gym").create_dataset(name, seed=seed, size=BLOCK)


def _silence() -> contextlib.redirect_stdout[io.StringIO]:
    """Some datasets print while they work, and stdout is for results."""
    return contextlib.redirect_stdout(io.StringIO())


def _package(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise TaskError(
            f"a reasoning_gym task needs the package {error.name}, which is not installed; install "
            'it with: pip install "verigrad[reasoning]"'
        ) from None
