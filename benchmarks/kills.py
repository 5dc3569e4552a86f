"""Kill runs at random moments, a hundred times and more, and compare them with undisturbed ones.

    python benchmarks/kills.py --seed 0

writes ``benchmarks/results/kills-seed-0.json``. The runs are the fast ones of the tests: a table
and a tiny language model, with several updates per batch, resets of the reference and verifier
workers. Each is killed by SIGKILL at moments that the seed chooses and resumed each time; then its
weights, optimiser, metrics, rollouts and findings are compared byte by byte.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from result import write_result

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))


def main() -> None:
    """Kill, compare, and write the result."""
    from kills import kill_and_compare, language_model, table

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=100, help="at least so many altogether")
    parser.add_argument("--share", type=float, default=0.2, help="of them on the language model")
    arguments = parser.parse_args()
    started = time.perf_counter()
    cases = {
        "table": (table, 10, arguments.kills * (1 - arguments.share)),
        "language model": (language_model, 5, arguments.kills * arguments.share),
    }
    record: dict[str, object] = {
        "command": f"python benchmarks/kills.py --seed {arguments.seed} --kills {arguments.kills}"
    }
    for name, (case, per_run, wanted) in cases.items():
        died: list[str] = []
        runs = 0
        while len(died) < wanted:
            with tempfile.TemporaryDirectory() as folder:
                seed = 1000 * arguments.seed + runs
                died += kill_and_compare(case, Path(folder) / "runs", per_run, seed)
            runs += 1
            print(f"{name}: {len(died)} kills in {runs} runs, all of them as if undisturbed")
        record[name] = {
            "runs": runs,
            "kills": len(died),
            "different": 0,
            "died": dict(Counter(died).most_common()),
        }
    record |= {
        "seconds": round(time.perf_counter() - started),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }
    write_result(f"kills-seed-{arguments.seed}", record)


if __name__ == "__main__":
    main()
