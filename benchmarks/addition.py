"""Does SmolLM2-135M learn to add, on a CPU, in minutes: one seed of ``examples/addition.toml``.

    python benchmarks/addition.py --seed 0

writes ``benchmarks/results/addition-seed-0.json``: held-out accuracy before and after with 95 %
intervals, how the rest went wrong, the time of the whole run, and the peak of resident memory.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from result import write_result

import verigrad
from verigrad.training.metrics import peak_memory

HERE = Path(__file__).parent
CONFIG = HERE.parent / "examples" / "addition.toml"


def main() -> None:
    """Run one seed and write its result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    with tempfile.TemporaryDirectory() as folder:
        changes = [("run.seed", str(seed)), ("run.folder", str(Path(folder) / "run"))]
        started = time.perf_counter()
        result = verigrad.train(verigrad.load_config(CONFIG, changes))
        seconds = time.perf_counter() - started
        environment = json.loads((result.folder / "environment.json").read_text())
    peak = peak_memory()
    record = {
        "command": f"python benchmarks/addition.py --seed {seed}",
        "configuration": "examples/addition.toml",
        "seed": seed,
        "steps": result.steps,
        "before": asdict(result.before) if result.before else None,
        "after": asdict(result.after) if result.after else None,
        "seconds": round(seconds, 1),
        "peak_memory_gb": round(peak / 1e9, 2) if peak else None,
        "threads": environment["decisions"]["threads"],
        "versions": environment["versions"],
    }
    write_result(f"addition-seed-{seed}", record)


if __name__ == "__main__":
    main()
