"""Reward functions written for TRL, used as verifiers without a change."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from verigrad.errors import ConfigError, VerigradError
from verigrad.types import Problem
from verigrad.verifiers.solutions import as_text

RewardFunction = Callable[..., Any]
"""``(prompts, completions, **columns) -> list[float | None]``, or a coroutine of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrlReward:
    """A TRL reward function as a verifier: it is called with lists of one.

    The reference holds the columns. A table gives each column by its name, and ``prompt``, which
    becomes ``prompts``, for a function that wants it; anything else becomes the one column that
    ``column`` names. Each reaches the function as a list of one, next to ``completions``. What the
    function returns for the completion is the reward; None means that it does not apply.

    Example:
        def length(completions, **columns): return [float(len(c)) for c in completions]
        TrlReward(function=length)("four", None)   -> 4.0
    """

    function: RewardFunction
    """The reward function, plain or asynchronous."""

    column: str = "answer"
    """The name of the column for a reference that is not a table."""

    conversational: bool = False
    """Completions are lists of one chat message, as TRL gives them for chat prompts."""

    parameters: tuple[str, ...] = ()
    """The function's parameters that TRL fills from columns of its data, where they are known."""

    def __post_init__(self) -> None:
        """Refuse what cannot be called."""
        if not callable(self.function):
            raise ConfigError(f"the reward function is {self.function!r:.80}; expected a function")

    def __call__(self, completion: str, reference: Any) -> float | None:
        """The reward of one completion; None if the function does not apply to it.

        Raises:
            VerigradError: the function did not return one reward for one completion.
        """
        message = [{"role": "assistant", "content": completion}]
        columns = reference if isinstance(reference, Mapping) else {self.column: reference}
        given = {
            "prompts" if name == "prompt" else name: [value] for name, value in columns.items()
        }
        answer = self.function(
            completions=[message if self.conversational else completion], **given
        )
        if inspect.isawaitable(answer):
            import asyncio  # Every worker loads this module, and hardly any needs that one.

            answer = asyncio.run(_awaited(answer))
        return self._only(answer)

    def fitted(self, problem: Problem, column: str = "answer") -> "TrlReward":
        """The same for problems like this one.

        A reference that is no table goes to the column it has in the data; where the function has
        no parameter of that name, to the first parameter that no other column fills.

        Args:
            problem: one of the task's.
            column: the name of the reference's column in the data.
        """
        free = [name for name in self.parameters if name not in problem.metadata]
        return replace(
            self,
            column=column if column in self.parameters or not free else free[0],
            conversational=not isinstance(problem.prompt, str),
        )

    def columns(self, problem: Problem) -> dict[str, Any]:
        """What a data set for TRL would hold of a problem: its prompt, reference and metadata."""
        reference = problem.reference
        columns = reference if isinstance(reference, Mapping) else {self.column: reference}
        prompt = problem.prompt if isinstance(problem.prompt, str) else list(problem.prompt)
        return {**problem.metadata, **columns, "prompt": prompt}

    def solution(self, reference: Any) -> str | None:
        """The column that holds the answer, as text; None where it holds none."""
        columns = reference if isinstance(reference, Mapping) else {self.column: reference}
        return as_text(columns.get(self.column))

    def _only(self, answer: Any) -> float | None:
        name = getattr(self.function, "__name__", repr(self.function))
        try:
            rewards = list(answer)
        except TypeError:
            raise VerigradError(
                f"the reward function {name} returned {answer!r:.80}; expected a list of one reward"
            ) from None
        if len(rewards) != 1:
            raise VerigradError(
                f"the reward function {name} returned {len(rewards)} rewards for 1 completion; "
                "expected one for each"
            )
        return None if rewards[0] is None else float(rewards[0])


def reference_for(verifier: object, problem: Problem) -> Any:
    """What a verifier gets as the reference of a problem: for a TRL function all its columns."""
    return verifier.columns(problem) if isinstance(verifier, TrlReward) else problem.reference


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer
