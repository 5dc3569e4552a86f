"""How many small programs a second the code verifier runs, in each sandbox that works here.

    python benchmarks/sandbox.py --seed 0

writes ``benchmarks/results/sandbox-seed-0.json``. The seed chooses the numbers in the programs and
in their tests. Each is a function with three tests; as many workers as there are cores verify them.
"""

import argparse
import os
import random
import sys
import time
from typing import Any

from result import write_result

from verigrad.verifiers.code import CodeVerifier
from verigrad.verifiers.pool import VerifierPool
from verigrad.verifiers.sandbox import SANDBOXES, SandboxUnavailableError, open_sandbox

WARM_UP = 10


def main() -> None:
    """Measure every sandbox and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=300)
    arguments = parser.parse_args()
    calls = small_programs(random.Random(arguments.seed), arguments.programs)
    load = os.getloadavg()[0]
    record = {
        "command": f"python benchmarks/sandbox.py --seed {arguments.seed}",
        "programs": arguments.programs,
        "workers": os.cpu_count(),
        "sandboxes": {name: measured(name, calls) for name in SANDBOXES},
        "load_before": load,
        "python": sys.version.split()[0],
    }
    write_result(f"sandbox-seed-{arguments.seed}", record)


def small_programs(numbers: random.Random, count: int) -> list[tuple[str, Any]]:
    """Completions and references of which every verdict is a full reward."""
    return [small_program(numbers.randrange(1000)) for _ in range(count)]


def small_program(number: int) -> tuple[str, Any]:
    """A program that adds a number to the sum of a list, and its tests."""
    program = f"import math\n\ndef total(items):\n    return math.fsum(items) + {number}\n"
    lists = ([1, 2, 3], [], [number])
    tests = [{"args": [items], "expected": sum(items) + number} for items in lists]
    return f"```python\n{program}```", {"entry": "total", "tests": tests}


def measured(name: str, calls: list[tuple[str, Any]]) -> dict[str, Any]:
    """Programs a second and the time of one, or why there are none."""
    try:
        open_sandbox(name).close()
    except SandboxUnavailableError as error:
        return {"unavailable": str(error)}
    with VerifierPool(CodeVerifier(sandbox=name), workers=os.cpu_count() or 1) as pool:
        pool.verify_all(calls[:WARM_UP])
        pool.take_report()
        started = time.perf_counter()
        verdicts = pool.verify_all(calls)
        seconds = time.perf_counter() - started
        report = pool.take_report()
    wrong = sum(verdict.reward != 1.0 for verdict in verdicts)
    rate = len(calls) / seconds
    print(f"{name}: {rate:.0f} programs per second, {wrong} verdicts not as they should be")
    return {
        "programs_per_second": round(rate, 1),
        "milliseconds_median": round(1000 * report.percentile(0.5), 1),
        "milliseconds_95": round(1000 * report.percentile(0.95), 1),
        "wrong": wrong,
    }


if __name__ == "__main__":
    main()
