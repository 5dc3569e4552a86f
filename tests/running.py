"""Whole runs for the tests: a table and a tiny language model, in this process and in others.

The other processes are forked from a server that has imported torch once; they are real ones, which
can be killed.
"""

import importlib.util
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import verigrad
from verigrad.cli import main
from verigrad.training.checkpoint import checkpoints

REPOSITORY = Path(__file__).parents[1]
TOY = REPOSITORY / "examples" / "toy.toml"

ON_PATH = {"PYTHONPATH": str(Path(verigrad.__file__).parents[1])}
"""Environment of a process that imports the same verigrad from wherever it starts."""

TABLE = [
    str(TOY),
    *("--run.steps", "300"),
    *("--task.held-out", "0.3"),
    *("--evaluation.problems", "4"),
    *("--evaluation.every", "30"),
    *("--checkpoint.every", "20"),
    *("--checkpoint.keep", "3"),
]
"""Arguments for a run of a table that evaluates, with a checkpoint every 20 of its 300 steps."""

LETTERS = """
from verigrad import Problem, ProblemTask

problems = [Problem(id=f"say-{n}", prompt=f"Say {n}.", reference=None) for n in range(20)]

def share_of_letters(completion, reference):
    return sum(map(str.isalpha, completion)) / 6

letters = ProblemTask("letters", problems, share_of_letters)
"""
"""A task on which an untrained model of single characters gets rewards that differ."""

TINY_RUN = """
task = "letters.py:letters"
model = "model"

[run]
steps = 8
threads = 1

[sampling]
problems = 2
completions = 3
max_new_tokens = 6

[optimizer]
learning_rate = 1e-2

[evaluation]
every = 2
problems = 3

[verifier]
workers = 0

[checkpoint]
every = 2
"""
"""A run of a fraction of a second; its folder holds the task and the model."""

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        "verigrad.cli",
        "verigrad.training.run",
        "transformers.models.llama.modeling_llama",
        "transformers.models.auto.tokenization_auto",
    ]
)


def load_benchmark(name: str) -> ModuleType:
    """A script of ``benchmarks`` as a module, which finds the others there as when it is run."""
    if str(REPOSITORY / "benchmarks") not in sys.path:
        sys.path.append(str(REPOSITORY / "benchmarks"))
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def write_tiny_run(folder: Path) -> Path:
    """Write a configuration with its task and its model; return the configuration's path."""
    from tiny import save_tiny_model

    folder.mkdir(exist_ok=True)
    save_tiny_model(folder / "model")
    (folder / "letters.py").write_text(LETTERS)
    config = folder / "run.toml"
    config.write_text(TINY_RUN)
    return config


def write_task(folder: Path, code: str, name: str = "task.py") -> str:
    """Write a task file that imports what tasks need; return its absolute path."""
    path = folder / name
    path.write_text(f"from verigrad import Problem, ProblemTask, Status, Verdict\n{code}\n")
    return str(path)


def start(folder: Path, *arguments: object) -> BaseProcess:
    """Start a command in a process of its own, its output in files of a folder."""
    folder.mkdir(exist_ok=True)
    process = processes.Process(target=command, args=(folder, [str(a) for a in arguments]))
    process.start()
    return process


def command(folder: Path, arguments: list[str]) -> None:
    """Be that process."""
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.chdir(folder)
    sys.exit(main(arguments))


def wait_for_lines(path: Path, number: int, process: BaseProcess) -> None:
    """Wait until a file has so many lines, or say why it never will."""
    while not path.exists() or path.read_bytes().count(b"\n") < number:
        assert process.is_alive(), f"the process ended before {path.name} had {number} lines"
        time.sleep(0.001)


def kill_after(run: Path, number: int, process: BaseProcess, extra_seconds: float = 0.0) -> None:
    """Kill a run, as the system would, when it has written so many lines of metrics."""
    wait_for_lines(run / "metrics.jsonl", number, process)
    time.sleep(extra_seconds)
    process.kill()
    process.join()
    assert process.exitcode == -9, "the run was over before it could be killed"


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_clock(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a step that do not depend on how busy the machine was."""
    return {k: v for k, v in metrics.items() if not k.startswith(("time/", "memory/"))}


def traces(run: Path) -> dict[str, Any]:
    """Everything that must be the same, bit for bit, in two runs of the same configuration."""
    newest = checkpoints(run / "checkpoints")[-1]
    state = json.loads((newest / "state.json").read_text())
    state["recent"] = [without_clock(metrics) for metrics in state["recent"]]
    return {
        "metrics": [without_clock(metrics) for metrics in read_jsonl(run / "metrics.jsonl")],
        "rollouts": (run / "rollouts.jsonl").read_bytes(),
        "findings": (run / "findings.json").read_bytes(),
        "newest": newest.name,
        "policy": (newest / "policy.safetensors").read_bytes(),
        "reference": (newest / "reference.safetensors").read_bytes(),
        "optimizer": (newest / "optimizer.safetensors").read_bytes(),
        "state": state,
        "final": {path.name: path.read_bytes() for path in (run / "final").iterdir()},
    }


def assert_same_run(found: Path, wanted: Path) -> None:
    """Hold two runs equal, naming the part that differs rather than printing megabytes."""
    a, b = traces(found), traces(wanted)
    assert [line["step"] for line in a["metrics"]] == [line["step"] for line in b["metrics"]]
    for mine, other in zip(a["metrics"], b["metrics"], strict=True):
        assert mine == other
    assert [name for name in a if a[name] != b[name]] == []


def snapshot(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder, less the lock and what Python keeps of a task."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.name != "run.lock"
    }
