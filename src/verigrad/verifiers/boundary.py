"""Where a verifier's answer becomes a verdict, and its failure a failed verdict.

What a verifier raises or returns is handled here, in the process that calls it. One that never
returns, takes all memory or ends its process needs a process of its own: see VerifierPool.
"""

import copy
import inspect
import math
import traceback
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, TypeVar

from verigrad.errors import ConfigError, VerigradError
from verigrad.types import FailureKind, Status, Verdict


class Verifier(Protocol):
    """Checks one completion: a plain function will do, and so will an asynchronous one."""

    def __call__(
        self, completion: str, reference: Any, /
    ) -> float | bool | Verdict | Awaitable[float | bool | Verdict]:
        """Return a reward, true or false for 1 or 0, or a verdict; raise when unable to tell."""
        ...


Function = TypeVar("Function", bound=Verifier)


def bounded(verifier: Function) -> Function:
    """Mark a function as bounded: see ``is_bounded``."""
    verifier.is_bounded = True  # type: ignore[attr-defined]
    return verifier


def is_bounded(verifier: object) -> bool:
    """Whether a verifier says that it is bounded, by an attribute of that name that is true.

    A bounded verifier is a pure function of its arguments whose time and memory grow at most in
    proportion to the length of a completion, and which runs no code but its own. It needs no
    process of its own: nothing that a model writes makes it hang, crash or take memory.
    """
    return getattr(verifier, "is_bounded", False) is True


def refuse_other_arguments(function: Any, name: str) -> None:
    """See that a function can be called as a verifier is, before anything is spent on it.

    Args:
        function: the verifier; one in C that does not say what it takes is believed.
        name: what messages call it.

    Raises:
        ConfigError: it takes other arguments than a completion and a reference.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    if "completions" in signature.parameters:
        raise ConfigError(
            f"the verifier {name}{signature} takes completions, as a reward function for TRL does; "
            f"give TrlReward(function={name}) of verigrad.verifiers in its place"
        )
    try:
        signature.bind("", None)
    except TypeError as error:
        raise ConfigError(
            f"the verifier {name}{signature} cannot be called with a completion and a reference "
            f"({error}); those two are what a verifier is given"
        ) from None


def verify(verifier: Verifier, completion: str, reference: Any) -> Verdict:
    """Run a verifier; whatever goes wrong is a failed verdict that says what and where.

    The verifier gets a copy of the reference, so that no call can change what the next one sees.

    Args:
        verifier: the function.
        completion: the text to check.
        reference: what it is checked against.

    Returns:
        Its verdict; failed if it raised, exited, or returned something that is not a finite reward.
    """
    try:
        answer: object = verifier(completion, copy.deepcopy(reference))
        if inspect.isawaitable(answer):
            import asyncio  # It takes longer to load than most verifiers take to run.

            answer = asyncio.run(_awaited(answer))
        return _as_verdict(answer)
    except MemoryError as error:
        return Verdict.failed(describe(error), FailureKind.MEMORY)
    except KeyboardInterrupt:
        raise  # Ctrl-C is for who runs the verifier.
    except BaseException as error:  # noqa: BLE001  whatever it raises is its failure
        return Verdict.failed(describe(error))


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer


def _as_verdict(answer: Any) -> Verdict:
    if isinstance(answer, Verdict):
        return _plain(answer)
    if getattr(answer, "shape", None) == ():
        answer = answer.item()  # A scalar of numpy or torch is the number that it holds.
    if not isinstance(answer, bool | int | float):
        return Verdict.failed(
            f"bad value: the verifier returned {type(answer).__name__} {answer!r:.80}; "
            "expected a number, true or false, or a Verdict",
            FailureKind.BAD_VALUE,
        )
    if not math.isfinite(answer):
        return Verdict.failed(
            f"bad value: the verifier returned {answer}; a reward is finite", FailureKind.BAD_VALUE
        )
    return Verdict.scored(float(answer))


def _plain(verdict: Verdict) -> Verdict:
    """The same in the types that a verdict is declared with, whatever a verifier put into it.

    A reward that is a fraction or a scalar of numpy is a number here; in a file it would be none.
    """
    try:
        reward = None if verdict.reward is None else float(verdict.reward)
        return Verdict(
            status=Status(verdict.status),
            reward=reward,
            components=_numbers(verdict.components),
            weights=_numbers(verdict.weights),
            detail=str(verdict.detail),
            kind=None if verdict.kind is None else FailureKind(verdict.kind),
        )
    except (TypeError, ValueError, AttributeError) as error:
        return Verdict.failed(
            f"bad value: the verdict is none as it should be: {error}", FailureKind.BAD_VALUE
        )


def _numbers(parts: Mapping[str, float]) -> dict[str, float]:
    """Finite numbers by names.

    Raises:
        ValueError: one is not finite.
    """
    numbers = {str(name): float(part) for name, part in parts.items()}
    for name, number in numbers.items():
        if not math.isfinite(number):
            raise ValueError(f"its part {name!r} is {number}; expected a finite number")
    return numbers


def describe(error: BaseException) -> str:
    """The error in one line, with the file and row of the innermost frame.

    An error of ours says in words what is wrong, and its place in our code tells a person nothing.
    """
    if isinstance(error, VerigradError):
        return f"exception: {' '.join(str(error).split())}"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    # Said by traceback, which copes with an error that cannot be turned into text.
    said = " ".join("".join(traceback.format_exception_only(error)).split())
    return f"exception: {said}{place}"
