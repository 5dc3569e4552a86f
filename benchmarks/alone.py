"""A piece of a benchmark in a process of its own, so that no other piece's memory is in its way."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def in_own_process(
    script: str, options: list[str], environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a script says in its last line, which is JSON.

    Args:
        script: its path.
        options: of its command line.
        environment: of the process; None for this one's.

    Raises:
        CalledProcessError: it failed.
    """
    output = subprocess.run(
        [sys.executable, script, *options],
        check=True, stdout=subprocess.PIPE, text=True, env=environment,
    ).stdout  # fmt: skip
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result
