"""Where programs that a model wrote are run: one seam, and what there is behind it."""

import sys
from collections.abc import Callable

from verigrad.errors import UserError
from verigrad.verifiers.sandbox.base import (
    Ending,
    Outcome,
    Program,
    Sandbox,
    SandboxError,
    SandboxLimits,
    SandboxUnavailableError,
    Strength,
)
from verigrad.verifiers.sandbox.bubblewrap import Bubblewrap
from verigrad.verifiers.sandbox.locked import Sandlock
from verigrad.verifiers.sandbox.warm import Namespaces, Subprocess
from verigrad.verifiers.sandbox.wasi import Wasi

__all__ = [
    "SANDBOXES",
    "STRONGEST",
    "Ending",
    "Outcome",
    "Program",
    "Sandbox",
    "SandboxError",
    "SandboxLimits",
    "SandboxUnavailableError",
    "Strength",
    "open_sandbox",
]

SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "namespaces": Namespaces,
    "bubblewrap": Bubblewrap,
    "sandlock": Sandlock,
    "wasi": Wasi,
    "subprocess": Subprocess,
}
"""Every sandbox by name, the strongest first; of equally strong ones first the faster, but after
those in which a program finds all that it may expect of a machine."""

STRONGEST = "strongest"
"""Asks for the first of SANDBOXES that works on this machine and is made for hostile programs."""

_TRIAL = Program(sources=("def double(n):\n    return n + n\n",), calls=("double(21)",))


def open_sandbox(name: str = STRONGEST) -> Sandbox:
    """Open a sandbox and see it work.

    Nothing weaker than what is asked for is ever opened: a sandbox that only stops accidents must
    be named.

    Args:
        name: one of SANDBOXES, or STRONGEST.

    Raises:
        UserError: there is no sandbox of that name.
        SandboxUnavailableError: it does not work on this machine, and why.
    """
    if name != STRONGEST:
        if name not in SANDBOXES:
            raise UserError(
                f"there is no sandbox {name!r}; there are {', '.join(SANDBOXES)}, and "
                f"{STRONGEST!r} for the first that is made for hostile programs and works"
            )
        return _tried(name)
    failed = []
    for each, kind in SANDBOXES.items():
        if getattr(kind, "strength", None) is not Strength.ISOLATED:
            continue
        try:
            return _tried(each)
        except SandboxUnavailableError as error:
            failed.append(str(error))
    raise SandboxUnavailableError(
        f"no sandbox for hostile programs works on this machine ({'; '.join(failed)}), and "
        "programs that a model wrote are not run in less; if accidents are all you fear, ask for "
        "the sandbox 'subprocess' by name"
    )


def _tried(name: str) -> Sandbox:
    if sys.platform != "linux":
        raise SandboxUnavailableError(f"the sandbox {name!r} needs Linux; this is {sys.platform}")
    try:
        sandbox = SANDBOXES[name]()
        outcome = sandbox.run(_TRIAL, SandboxLimits())
    except (SandboxUnavailableError, SandboxError, OSError) as error:
        raise SandboxUnavailableError(
            f"the sandbox {name!r} does not work here: {error}"
        ) from error
    if outcome.values != (42,):
        sandbox.close()
        raise SandboxUnavailableError(
            f"the sandbox {name!r} does not work here: a trial program in it ended with "
            f"{outcome.ending}, exit code {outcome.exit_code}: {outcome.detail}"
        )
    return sandbox
