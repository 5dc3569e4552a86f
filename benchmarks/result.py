"""What a benchmark found, in a file of its own."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MACHINE = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
"""In words, without a name that is somebody's."""


def write_result(name: str, found: Mapping[str, Any]) -> None:
    """Write what was found, and the machine, to ``benchmarks/results/NAME.json``."""
    target = HERE / "results" / f"{name}.json"
    target.write_text(json.dumps({**found, "machine": MACHINE}, indent=2) + "\n")
    print(f"wrote {target.relative_to(HERE.parent)}")
