"""Opens a verifier for a run: where it runs, under which limits, in which sandbox, and why."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from verigrad.config import VerifierConfig
from verigrad.errors import UserError
from verigrad.machine import cores
from verigrad.verifiers.adapter import TrlReward
from verigrad.verifiers.boundary import Verifier, is_bounded, refuse_other_arguments
from verigrad.verifiers.code import CodeVerifier
from verigrad.verifiers.limits import Limits
from verigrad.verifiers.mixed import PartVerifier
from verigrad.verifiers.pool import VerifierPool
from verigrad.verifiers.runner import InProcess, Runner
from verigrad.verifiers.sandbox import SANDBOXES, STRONGEST, Strength, open_sandbox
from verigrad.verifiers.weighted import Weighted

MOST_WORKERS = 8
"""More are started only where a configuration asks for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A verifier that is ready, and how it runs."""

    runner: Runner
    """Runs it."""

    reasons: dict[str, str]
    """Where it runs and why ("verifier"), and what keeps programs in ("sandbox"), in words."""

    sandbox: str | None = None
    """The name of the sandbox that programs run in, or several names; None where none runs."""


@contextmanager
def opened(verifier: Verifier, config: VerifierConfig) -> Iterator[Opened]:
    """Have a verifier ready to run as a configuration says, and end what was started for it.

    Args:
        verifier: a task's.
        config: how many workers, their limits, and the weakest sandbox that is allowed.

    Raises:
        UserError: it takes other arguments than a completion and a reference, cannot be sent to a
            worker process, not be loaded there, or runs programs in less than the configured
            sandbox; why.
    """
    for each in _functions(verifier):
        refuse_other_arguments(each, name_of(each))
    verifier, sandboxes = _confined(verifier, config.sandbox)
    workers, why = _placed(verifier, config.workers)
    reasons = {"verifier": why}
    if sandboxes:
        reasons["sandbox"] = "; ".join(
            f"programs run in the sandbox {name} ({strength})"
            for name, strength in sandboxes.items()
        )
    sandbox = ", ".join(sandboxes) or None
    if workers == 0:
        yield Opened(runner=InProcess(verifier), reasons=reasons, sandbox=sandbox)
        return
    limits = Limits(
        cpu_seconds=config.cpu_seconds,
        wall_seconds=config.wall_seconds,
        memory_bytes=config.memory_mb * 1_000_000,
    )
    with VerifierPool(verifier, workers=workers, limits=limits) as pool:
        yield Opened(runner=pool, reasons=reasons, sandbox=sandbox)


def _functions(verifier: Any) -> Iterator[Any]:
    """What is called with a completion and a reference in the end: each part of a sum."""
    parts: list[Any] = []
    if isinstance(verifier, PartVerifier):
        parts = list(verifier.verifiers.values())
    elif isinstance(verifier, Weighted):
        parts = [part for _, part in verifier.parts.values()]
    if not parts:
        yield verifier
    for part in parts:
        yield from _functions(part)


def _placed(verifier: Verifier, asked: int | str) -> tuple[int, str]:
    """How many workers there are, and why, in words; none means this process."""
    name = name_of(verifier)
    if isinstance(asked, int):
        where = f"in {_counted(asked)}" if asked else "in the trainer's process, without limits"
        return asked, f"{name} runs {where}: verifier.workers = {asked}"
    if is_bounded(verifier):
        return 0, f"{name} runs in the trainer's process: it is bounded"
    if sys.platform == "win32":
        return (
            0,
            f"{name} runs in the trainer's process, without limits: workers need another system",
        )
    workers = min(cores(), MOST_WORKERS)
    return workers, f"{name} runs in {_counted(workers)}, under limits of time and memory"


def _counted(workers: int) -> str:
    return f"{workers} worker process{'es' if workers > 1 else ''}"


def name_of(verifier: Any) -> str:
    """What a verifier is called in words for a person."""
    if isinstance(verifier, Weighted):
        return f"the sum of {', '.join(verifier.parts)}"
    if isinstance(verifier, PartVerifier):
        return f"each verifier of {', '.join(verifier.verifiers)}"
    if isinstance(verifier, TrlReward):
        return name_of(verifier.function)
    name: str = getattr(verifier, "__name__", type(verifier).__name__)
    return name


def _confined(verifier: Any, sandbox: str) -> tuple[Any, dict[str, Strength]]:
    """The verifier with a sandbox that works for all programs, and those sandboxes by name."""
    if isinstance(verifier, CodeVerifier):
        name = _sandbox_of(verifier.sandbox, STRONGEST if sandbox == "auto" else sandbox)
        found = open_sandbox(name)
        found.close()
        return replace(verifier, sandbox=found.name), {found.name: found.strength}
    if isinstance(verifier, PartVerifier):
        each, sandboxes = _all_confined(verifier.verifiers, sandbox)
        return PartVerifier(each), sandboxes
    if isinstance(verifier, Weighted):
        parts = {name: part for name, (_, part) in verifier.parts.items()}
        each, sandboxes = _all_confined(parts, sandbox)
        return Weighted({n: (verifier.parts[n][0], part) for n, part in each.items()}), sandboxes
    return verifier, {}


def _all_confined(
    verifiers: Mapping[str, Any], sandbox: str
) -> tuple[dict[str, Any], dict[str, Strength]]:
    """Several, and the sandboxes of all."""
    confined = {name: _confined(verifier, sandbox) for name, verifier in verifiers.items()}
    sandboxes = {name: how for _, found in confined.values() for name, how in found.items()}
    return {name: each for name, (each, _) in confined.items()}, sandboxes


def _sandbox_of(own: str, configured: str) -> str:
    """The sandbox of a verifier: its own if it names one, else the configured one.

    Raises:
        UserError: its own is weaker than the configured one.
    """
    if own == STRONGEST:
        return configured
    if _strength(own) is Strength.ACCIDENTS and _strength(configured) is Strength.ISOLATED:
        raise UserError(
            f"the verifier runs programs in the sandbox {own!r}, which stops accidents only, and "
            "verifier.sandbox asks for one that is made for hostile programs; leave the sandbox "
            f'out of the verifier, or set verifier.sandbox = "{own}"'
        )
    return own


def _strength(name: str) -> Strength | None:
    """How strong a sandbox is; None for a name that is none."""
    return (
        Strength.ISOLATED if name == STRONGEST else getattr(SANDBOXES.get(name), "strength", None)
    )
