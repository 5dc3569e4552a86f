"""A sandbox that the package sandlock makes, anew for every program."""

import importlib.util

from verigrad.verifiers.sandbox.base import SandboxUnavailableError, Strength
from verigrad.verifiers.sandbox.warm import (
    ENVIRONMENT,
    FOLDER,
    Warm,
    inside_command,
    with_packages,
)


class Sandlock(Warm):
    """Landlock and a supervisor of system calls, by sandlock; our own filter and limits.

    Needs neither root nor namespaces, but a kernel with Landlock of its sixth version (Linux 6.12).
    """

    name = "sandlock"
    strength = Strength.ISOLATED

    def __init__(self) -> None:
        """Start the process that has sandboxes made.

        Raises:
            SandboxUnavailableError: the package is not installed, or does not work here.
        """
        if importlib.util.find_spec("sandlock") is None:
            raise SandboxUnavailableError(
                "the package sandlock is not installed; install it with: "
                "pip install 'verigrad[sandlock]'"
            )
        super().__init__()

    def _statement(self, descriptor: int) -> str:
        inside = inside_command(FOLDER, "from inside.take import take; del sys.path[0]; take()")
        return with_packages(
            "from inside.locked import serve; "
            f"serve({descriptor}, {inside!r}, {FOLDER!r}, {ENVIRONMENT!r})"
        )
