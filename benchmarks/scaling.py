"""How time and memory grow with the completions, the lengths and the vocabulary.

    python benchmarks/scaling.py --seed 0

writes ``benchmarks/results/scaling-seed-0.json`` and ``docs/scaling.svg``. One group of random
tokens on a small model, one axis varied at a time, each point in a process of its own: the median
time of generating it and of one training pass over it, the memory that the pass adds at its peak,
and the positions that enter the model in the pass. The exponent is the slope of a straight line
through the logarithms of each axis's points; 0 means that it does not matter and 1 that twice as
much costs twice. Needs ``pip install "verigrad[study]"`` for the figure.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from alone import in_own_process
from result import write_result

HERE = Path(__file__).parent
BASE = {"completions": 8, "prompt": 128, "completion": 64, "vocabulary": 8192}
AXES = {
    "completions": [4, 8, 16, 32],
    "prompt": [128, 256, 512, 1024],
    "completion": [32, 64, 128, 256],
    "vocabulary": [8192, 16384, 32768, 65536],
}
MEASURED = {
    "generate_seconds": "generating",
    "train_seconds": "training pass",
    "train_gb": "memory of the pass",
    "train_positions": "positions in the pass",
}
REPEATS = 5


def main() -> None:
    """Measure every point, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--point", type=json.loads)
    arguments = parser.parse_args()
    if arguments.point:
        print(json.dumps(measured(arguments.point, arguments.seed)))
        return
    points = {
        axis: [{axis: size} | point(BASE | {axis: size}, arguments.seed) for size in sizes]
        for axis, sizes in AXES.items()
    }
    record = {
        "command": f"python benchmarks/scaling.py --seed {arguments.seed}",
        "base": BASE,
        "axes": {
            axis: {"exponents": exponents(axis, some), "points": some}
            for axis, some in points.items()
        },
        "load_before": os.getloadavg()[0],
    }
    write_result(f"scaling-seed-{arguments.seed}", record)
    draw(points, HERE.parent / "docs" / "scaling.svg")
    for axis, found in record["axes"].items():
        print(axis, found["exponents"])


def point(sizes: dict[str, int], seed: int) -> dict[str, float]:
    """One point, measured in a process of its own."""
    options = ["--seed", str(seed), "--point", json.dumps(sizes)]
    # Freed memory goes back at once, so that the peak of a pass is that of what it keeps.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    return in_own_process(__file__, options, environment)


def exponents(axis: str, points: list[dict[str, float]]) -> dict[str, float]:
    """The slope of each measure's logarithm over that of the axis."""
    sizes = [math.log(some[axis]) for some in points]
    return {
        name: round(
            statistics.linear_regression(sizes, [math.log(some[name]) for some in points]).slope, 2
        )
        for name in MEASURED
    }


def measured(sizes: dict[str, int], seed: int) -> dict[str, float]:
    """Time, memory and positions of one group of random tokens."""
    import torch

    from verigrad.engines import Draws, LocalEngine
    from verigrad.hashing import Purpose
    from verigrad.policies.causal_lm import CausalLM
    from verigrad.training.trial import peak
    from verigrad.types import Prompt, Sampling

    silent = SimpleNamespace(eos_token_id=None, decode=lambda token_ids, **_: "")
    policy = CausalLM(model(sizes), silent, shares_prompts=True)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(sizes["vocabulary"], (sizes["prompt"],), generator=generator).tolist()
    prompt = Prompt(problem_id="group", token_ids=tuple(ids))
    sampling = Sampling(max_new_tokens=sizes["completion"], stop_token_ids=())
    draws = Draws(seed=seed, purpose=Purpose.TRAIN, step=0)
    engine = LocalEngine(policy)
    generate = seconds(lambda: engine.generate([prompt], sizes["completions"], sampling, draws))
    ((*completions,),) = engine.generate([prompt], sizes["completions"], sampling, draws)
    tokens = laid_out(prompt, [completion.token_ids for completion in completions])
    positions = 0

    def count(module: Any, inputs: tuple[Any, ...]) -> None:
        nonlocal positions
        positions += inputs[0].numel()

    def train() -> None:
        policy.module.zero_grad(set_to_none=True)
        policy.score(tokens, 1.0).log_probs.sum().backward()

    _, taken = peak(train, "cpu")
    if taken is None:
        raise SystemExit("this system does not say how much memory a process takes")
    took = seconds(train)
    policy.module.get_input_embeddings().register_forward_pre_hook(count)
    train()
    return {
        "generate_seconds": generate,
        "train_seconds": took,
        "train_gb": taken / 1e9,
        "train_positions": positions,
    }


def model(sizes: dict[str, int]) -> Any:
    """Four layers of 256 units."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=sizes["vocabulary"],
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def laid_out(prompt: Any, completions: list[tuple[int, ...]]) -> Any:
    """The tokens of one group, all of which train."""
    import torch

    from verigrad.batch import Tokens

    ids = torch.tensor(completions)
    return Tokens(
        prompts=(prompt,),
        group_index=torch.zeros(len(ids), dtype=torch.int64),
        token_ids=ids,
        lengths=torch.full((len(ids),), ids.shape[1]),
        mask=torch.ones(ids.shape, dtype=torch.bool),
        sampling_log_probs=torch.zeros(ids.shape),
    )


def seconds(work: Callable[[], object]) -> float:
    """The median of a few runs after a warm-up."""
    work()
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def draw(points: dict[str, list[dict[str, float]]], path: Path) -> None:
    """One panel per axis, every measure relative to the smallest size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    for panel, (axis, some) in zip(figure.subplots(2, 2).flat, points.items(), strict=True):
        sizes = [each[axis] for each in some]
        for name, label in MEASURED.items():
            panel.plot(sizes, [each[name] / some[0][name] for each in some], "o-", label=label)
        panel.plot(sizes, [size / sizes[0] for size in sizes], "k:", label="in proportion")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xlabel(axis)
        panel.set_ylabel("relative to the smallest")
    figure.axes[0].legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
