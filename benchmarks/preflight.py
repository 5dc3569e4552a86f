"""How well the preflight foretells the memory of passes of other sizes.

    python benchmarks/preflight.py

writes ``benchmarks/results/preflight.json``: the preflight of ``examples/addition.toml`` with
``run.token_budget = "auto"`` on one thread, and then, for groups of 4 to 80 of its longest
completions, what a pass takes beside what was foretold.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from result import write_result

from verigrad.config import load_config
from verigrad.training.preflight import largest_group
from verigrad.training.setup import prepare
from verigrad.training.trial import try_pass

HERE = Path(__file__).parent
ROWS = (4, 16, 40, 80)


def main() -> None:
    """Measure, and write the result."""
    keys = [("run.threads", "1"), ("run.token_budget", "auto")]
    config = load_config(HERE.parent / "examples" / "addition.toml", keys)
    setup = prepare(config)
    if setup.preflight is None or setup.preflight.watch is None:
        raise SystemExit("this system does not say how much memory a process takes")
    cost = setup.preflight.watch.cost
    group = largest_group(list(setup.prompts.values()), config)

    def measured(rows: int) -> dict[str, Any]:
        one = try_pass(setup.policy, setup.algorithm, 1.0, "cpu", replace(group, rows=rows))
        return {
            "tokens": one.tokens,
            "seconds": round(one.seconds, 2),
            "megabytes": round((one.bytes or 0) / 1e6),
            "foretold_megabytes": round(cost.bytes(one.tokens) / 1e6),
        }

    # The first pass makes the gradients.
    try_pass(setup.policy, setup.algorithm, 1.0, "cpu", group.scaled(1 / 16))
    record = {
        "command": "python benchmarks/preflight.py",
        "preflight": setup.preflight.words,
        "passes": [measured(rows) for rows in ROWS],
        "torch": torch.__version__,
    }
    write_result("preflight", record)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
