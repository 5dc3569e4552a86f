"""Does a long run stay as it is: memory, open files, live objects and step time over 2,500 steps.

    python benchmarks/soak.py --seed 0

trains a table on nine problems and a language model of two small layers, both with evaluations and
checkpoints, looks at the process every 50 steps, and writes
``benchmarks/results/soak-seed-0.json``: for each, what was seen after the first 500 steps and at
the end, and the samples in between. Ends with 1 when something has grown.
"""

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from result import write_result

from verigrad import Problem, ProblemTask, Task
from verigrad.config import config_from
from verigrad.diagnosis import Metrics
from verigrad.engines import LocalEngine
from verigrad.machine import resident
from verigrad.tasks import load_task
from verigrad.training.folder import make_folder
from verigrad.training.progress import Progress
from verigrad.training.run import new_state
from verigrad.training.setup import prepare
from verigrad.training.trainer import Trainer

HERE = Path(__file__).parent
STEPS = 2500
EVERY = 50
SETTLED = 500
"""Caches fill and allocators settle in the first steps; growth is looked for after them."""

ALLOWED = {"resident_mb": 1.03, "open_files": 1.0, "objects": 1.01, "cpu_seconds": 1.5}
"""How much of what was there after the first steps may be there at the end. The time of
a step is processor time, and a median, because others may use the machine; what is left of them in
it needs the room."""


class Watch(Progress):
    """Looks at the process every so many steps, in the place of showing them to a person."""

    def __init__(self, steps: int, every: int = EVERY) -> None:
        super().__init__(steps, quiet=True)
        self._every = every
        self._seconds: list[float] = []
        self._last = time.process_time()
        self.samples: list[dict[str, float]] = []

    def step(self, metrics: Metrics) -> None:
        """Take a step's time, and every so many steps a sample."""
        self._seconds.append(time.process_time() - self._last)
        if int(metrics["step"] or 0) % self._every == 0:
            gc.collect()
            self.samples.append(
                {
                    "step": int(metrics["step"] or 0),
                    "resident_mb": resident() / 1e6,
                    "open_files": len(os.listdir("/proc/self/fd")),
                    "objects": len(gc.get_objects()),
                    "cpu_seconds": statistics.median(self._seconds),
                }
            )
            self._seconds = []
        self._last = time.process_time()


def soak(config: dict[str, Any], task: Task, watch: Watch) -> list[dict[str, float]]:
    """Run a configuration to its end in a folder that is removed; what was seen on the way."""
    with tempfile.TemporaryDirectory() as folder:
        run = config["run"] | {"folder": folder}
        checked = config_from(config | {"run": run}, source="soak", base=Path(folder))
        setup = prepare(checked, task)
        made = make_folder(folder, task.name)
        Trainer(setup, new_state(setup), LocalEngine(setup.policy), made, watch).run()
    return watch.samples


def growth(samples: list[dict[str, float]], settled: int = SETTLED) -> dict[str, Any]:
    """The medians of five samples early and late, and what grew more than is allowed between them.

    Args:
        samples: all of a run.
        settled: those up to this step are left out.
    """
    later = [sample for sample in samples if sample["step"] > settled]
    early, late = (
        {name: statistics.median(sample[name] for sample in some) for name in ALLOWED}
        for some in (later[:5], later[-5:])
    )
    grown = [name for name, most in ALLOWED.items() if late[name] > most * early[name]]
    return {"early": early, "late": late, "grown": grown}


def table(seed: int, steps: int) -> tuple[dict[str, Any], Task]:
    """The toy, with problems held out."""
    config: dict[str, Any] = {
        "model": "tabular",
        "task": {"name": "toy", "held_out": 0.3},
        "run": {"steps": steps, "seed": seed},
        "sampling": {"problems": 3, "max_new_tokens": 1},
        "optimizer": {"learning_rate": 0.05},
        "evaluation": {"every": 50},
        "checkpoint": {"every": 50},
    }
    return config, load_task(config_from(config, source="soak", base=HERE).task)


def language_model(seed: int, steps: int, folder: Path) -> tuple[dict[str, Any], Task]:
    """Two layers of random weights that are to write an ``a``."""
    save_model(folder)
    problems = [Problem(id=f"say-{n}", prompt=f"say {n}", reference="a") for n in range(20)]
    task = ProblemTask("letters", problems, lambda text, wanted: text.count(wanted) / 6)
    config: dict[str, Any] = {
        "model": str(folder),
        "task": {"name": "python:letters", "held_out": 0.2},
        "run": {"steps": steps, "seed": seed, "threads": 1},
        "sampling": {"problems": 2, "completions": 4, "max_new_tokens": 6},
        "optimizer": {"learning_rate": 1e-4},
        "evaluation": {"every": 50},
        "checkpoint": {"every": 50},
    }
    return config, task


def save_model(folder: Path) -> None:
    """Write a tiny model with one token per character."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = ["<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz0123456789 "]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ends = {"bos_token_id": None, "eos_token_id": 1}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(words), **sizes, **heads, **ends)).save_pretrained(
        folder
    )
    PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="<unk>", eos_token="</s>"
    ).save_pretrained(folder)


def main() -> int:
    """Run one seed and write what was seen; 1 when something has grown."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    started = time.perf_counter()
    seen = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (config, task) in {
            "table": table(options.seed, options.steps),
            "language model": language_model(options.seed, options.steps, Path(folder)),
        }.items():
            samples = soak(config, task, Watch(options.steps))
            seen[name] = {**growth(samples), "samples": samples}
            print(f"{name}: {seen[name]['early']} -> {seen[name]['late']}")
    record = {
        "command": f"python benchmarks/soak.py --seed {options.seed}",
        "seed": options.seed,
        "steps": options.steps,
        "seconds": round(time.perf_counter() - started, 1),
        "allowed": ALLOWED,
        "seen": seen,
    }
    write_result(f"soak-seed-{options.seed}", record)
    return 1 if any(part["grown"] for part in seen.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
