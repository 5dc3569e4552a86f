"""A verifier by its name: a built-in one, or what a file of the user's defines."""

import inspect
from dataclasses import dataclass, field
from typing import Any

from verigrad.errors import ConfigError
from verigrad.userfile import load_from_file
from verigrad.verifiers import VERIFIERS
from verigrad.verifiers.adapter import TrlReward
from verigrad.verifiers.boundary import Verifier, refuse_other_arguments

TRL_ARGUMENTS = {
    "prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric",
    "environments",
}  # fmt: skip
"""What TRL gives every reward function beside the columns of its data."""


@dataclass(frozen=True, slots=True)
class FromFile:
    """A function of the user's file; another process loads it from there by its name."""

    name: str
    """``file.py:name``, the file as an absolute path."""

    function: Any = field(repr=False, compare=False)
    """What the file defines by that name."""

    @property
    def __name__(self) -> str:
        """That of the function."""
        return self.name.rpartition(":")[2]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function."""
        return self.function(*arguments, **named)

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        """Travel as the name."""
        return _from_file, (self.name,)


def verifier_named(name: str) -> Verifier:
    """The verifier that a configuration names.

    A function of a file with a parameter ``completions`` is a reward function as TRL calls it, and
    is adapted; ``TrlReward.fitted`` says which of its parameters a reference goes to.

    Args:
        name: one of VERIFIERS, or ``file.py:name``.

    Raises:
        ConfigError: the file fails to run, has no such name, or what it has cannot be called, or
            not with a completion and a reference.
    """
    if name in VERIFIERS:
        return VERIFIERS[name]
    verifier = _from_file(name)
    if not isinstance(verifier, FromFile):
        return verifier
    parameters = _parameters(verifier.function)
    if "completions" not in parameters:
        refuse_other_arguments(verifier.function, name)
        return verifier
    columns = tuple(parameter for parameter in parameters if parameter not in TRL_ARGUMENTS)
    # None, which such a function may return, is a failed verdict where it stands alone.
    adapted: Any = TrlReward(
        function=verifier, column=next(iter(columns), "answer"), parameters=columns
    )
    return adapted  # type: ignore[no-any-return]


def _from_file(name: str) -> Verifier:
    found: Any = load_from_file(name, kind="a verifier", error=ConfigError)
    if not callable(found) or inspect.isclass(found):
        raise ConfigError(
            f"{name} is a {type(found).__name__}; a verifier is a function of a completion and a "
            "reference"
        )
    # A built-in verifier with options of the user's says more of itself than a function does.
    return found if type(found).__module__.startswith("verigrad.") else FromFile(name, found)


def _parameters(function: Any) -> list[str]:
    """The names of a function's parameters, without those that gather the rest; none if in C."""
    gathering = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    try:
        signature = inspect.signature(function)
    except ValueError:
        return []
    return [
        name for name, parameter in signature.parameters.items() if parameter.kind not in gathering
    ]
