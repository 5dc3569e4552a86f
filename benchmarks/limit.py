"""How far the work of one optimiser step is from what the machine can do.

    python benchmarks/limit.py --work A --seed 0

Counts what generating and one training pass need at least for a work of ``benchmarks/peer.py``,
measures in the same process how fast a plain product of matrices and a plain copy are, and compares
the time that follows with the time that verigrad takes, without verifier and optimiser;
``benchmarks/counting.py`` says what is counted. The reward gives signal to half of the groups where
there are several. Writes ``benchmarks/results/limit-A.json``. Without ``--work`` all are measured.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alone import in_own_process
from counting import (
    FLOAT32,
    Ids,
    forward_flops,
    generation_bytes,
    generation_loads,
    sizes_of,
    training_bytes,
    training_flops,
    training_load,
)
from peer import WORKS, Work, make_model, prompts, rewards
from result import write_result

if TYPE_CHECKING:
    from verigrad.algorithms import Algorithm
    from verigrad.batch import Batch
    from verigrad.policies.causal_lm import CausalLM
    from verigrad.types import Group

SIDE = 2048
"""Of the square matrices of the plain product."""

COPIED = 1 << 27
"""Numbers of the plain copy: 512 MiB, more than a processor's own memory holds."""

RATE_REPEATS = 9
STEPS = 15


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What the machine can do."""

    flops: float
    """Floating-point operations per second of a plain product."""

    bytes: float
    """Bytes per second of a plain copy, those read and those written together."""


@dataclass(frozen=True, kw_only=True)
class Need:
    """What is done in one go, at least."""

    flops: int
    bytes: int

    def seconds(self, rates: Rates) -> float:
        """The least time: arithmetic and memory work side by side."""
        return max(self.flops / rates.flops, self.bytes / rates.bytes)


def main() -> None:
    """Measure each work, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", choices=sorted(WORKS), action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    for name in arguments.work or sorted(WORKS):
        if arguments.folder:
            found = measured(WORKS[name], arguments.folder, arguments.repeats, arguments.seed)
            print(json.dumps(found))
        else:
            record(name, arguments.repeats, arguments.seed)


def record(name: str, repeats: int, seed: int) -> None:
    """Measure a work in a process of its own, and write what was found."""
    options = ["--work", name, "--seed", str(seed), "--repeats", str(repeats)]
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        make_model(WORKS[name], Path(folder) / "model")
        found = in_own_process(__file__, [*options, "--folder", folder])
    result = {
        "command": f"python benchmarks/limit.py {' '.join(options)}",
        "work": asdict(WORKS[name]),
        **found,
        "load_before": load,
    }
    write_result(f"limit-{name}", result)
    for part in ("generation", "training"):
        one = found[part]
        print(f"{name}, {part}: {statistics.median(one['seconds']):.3g} s, at least "
              f"{one['limit_seconds']:.3g} s, which is {one['share']:.0%}")  # fmt: skip


def measured(work: Work, folder: Path, repeats: int, seed: int) -> dict[str, Any]:
    """The machine's rates, and generating and training beside what they need."""
    import torch

    from verigrad import machine
    from verigrad.policies.causal_lm import CausalLM
    from verigrad.policies.models import load_model
    from verigrad.training.preflight import bounded
    from verigrad.training.step import accumulate

    rates = rates_of_machine()
    loaded = load_model(str(folder / "model"), device="cpu")
    machine.keep_freed()
    policy = CausalLM(loaded.model, loaded.tokenizer)
    sizes = sizes_of(policy.module)
    generate = generator(work, policy, seed)
    groups = generate()
    algorithm, batch = batch_of(work, groups)
    budget = bounded(work.prompt_tokens + work.completions * work.new_tokens, "cpu")

    def train() -> None:
        policy.module.zero_grad(set_to_none=True)
        accumulate(policy, batch, algorithm, temperature=1.0, token_budget=budget)

    steps = [
        Need(flops=forward_flops(sizes, load), bytes=generation_bytes(sizes, load))
        for load in generation_loads(
            [(one.prompt.token_ids, one.completion.token_ids) for g in groups for one in g.rollouts]
        )
    ]
    trained = training_load(rows_that_train(batch))
    a_pass = Need(flops=training_flops(sizes, trained), bytes=training_bytes(sizes))
    return {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "gigaflops_per_second": round(rates.flops / 1e9, 1),
        "gigabytes_per_second": round(rates.bytes / 1e9, 1),
        "sizes": asdict(sizes),
        "trained": asdict(trained),
        "generation": compared(steps, rates, times(generate, repeats)),
        "training": compared([a_pass], rates, times(train, repeats)),
        "token_step": [token_step(policy, rows) for rows in (1, work.problems * work.completions)],
    }


def rates_of_machine() -> Rates:
    """Measure both rates with torch's own number of threads."""
    import torch

    left, right = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    product = torch.empty(SIDE, SIDE)
    source = torch.ones(COPIED)
    target = torch.empty(COPIED)
    multiplying = times(lambda: torch.mm(left, right, out=product), RATE_REPEATS)
    copying = times(lambda: target.copy_(source), RATE_REPEATS)
    return Rates(
        flops=2 * SIDE**3 / statistics.median(multiplying),
        bytes=2 * FLOAT32 * COPIED / statistics.median(copying),
    )


def token_step(policy: "CausalLM", rows: int) -> dict[str, float]:
    """Milliseconds of one more token of some rows, and of the products in it when called bare."""
    import torch

    from verigrad.types import Prompt

    model = policy.module
    weights = [part.weight for part in model.modules() if isinstance(part, torch.nn.Linear)]
    inputs = [torch.randn(rows, weight.shape[1]) for weight in weights]
    everyone = torch.arange(rows)
    with torch.inference_mode():
        # Each row goes on with a token of its own, so that no two are the same.
        live = policy.continuation([Prompt(problem_id="", token_ids=(1, 2, 3))], rows)
        step = times(lambda: live.advance(everyone, everyone), STEPS)
        bare = times(
            lambda: [
                torch.nn.functional.linear(x, w) for x, w in zip(inputs, weights, strict=True)
            ],
            STEPS,
        )
    return {
        "rows": rows,
        "milliseconds": round(1000 * statistics.median(step), 1),
        "bare_products": round(1000 * statistics.median(bare), 1),
    }


def generator(work: Work, policy: "CausalLM", seed: int) -> Callable[[], "list[Group]"]:
    """Generates the same groups at each call, with rewards."""
    from verigrad.engines import Draws, LocalEngine
    from verigrad.hashing import Purpose
    from verigrad.types import Group, Problem, Rollout, Sampling, Verdict

    problems = [Problem(id=text, prompt=text, reference=None) for text in prompts(work, seed)]
    fed = [policy.encode(problem) for problem in problems]
    sampling = Sampling(max_new_tokens=work.new_tokens, stop_token_ids=())
    draws = Draws(seed=seed, purpose=Purpose.TRAIN, step=1)
    engine = LocalEngine(policy)
    signal = "half" if work.problems > 1 else "all"

    def groups() -> list[Group]:
        found = []
        sampled = engine.generate(fed, work.completions, sampling, draws)
        for slot, completions in enumerate(sampled):
            given = rewards([one.text for one in completions], slot, work, signal)
            rollouts = tuple(
                Rollout(prompt=fed[slot], completion=one, verdict=Verdict.scored(reward))
                for one, reward in zip(completions, given, strict=True)
            )
            found.append(Group(problem=problems[slot], rollouts=rollouts))
        return found

    return groups


def batch_of(work: Work, groups: "list[Group]") -> "tuple[Algorithm, Batch]":
    """What one update with GRPO is computed from."""
    from verigrad.algorithms import algorithm_from
    from verigrad.batch import make_batch
    from verigrad.config.algorithm import AlgorithmConfig

    algorithm = algorithm_from(AlgorithmConfig(), max_new_tokens=work.new_tokens)
    batch = make_batch(groups, algorithm)
    if batch is None:
        raise SystemExit("no group has signal, so there is nothing to train; take another --seed")
    return algorithm, batch


def rows_that_train(batch: "Batch") -> list[tuple[Ids, Ids]]:
    """The prompt and the completion of each row with a gradient."""
    ids, lengths, groups = (
        values.tolist() for values in (batch.token_ids, batch.lengths, batch.group_index)
    )
    return [
        (batch.prompts[groups[row]].token_ids, ids[row][: lengths[row]])
        for row in batch.row_trains().nonzero().flatten().tolist()
    ]


def compared(needs: list[Need], rates: Rates, seconds: list[float]) -> dict[str, Any]:
    """The least time, each of the needs after the other, beside that which was taken."""
    limit = sum(need.seconds(rates) for need in needs)
    flops, moved = sum(need.flops for need in needs), sum(need.bytes for need in needs)
    return {
        "flops": flops,
        "bytes": moved,
        "seconds_of_flops": flops / rates.flops,
        "seconds_of_bytes": moved / rates.bytes,
        "limit_seconds": limit,
        "seconds": seconds,
        "share": round(limit / statistics.median(seconds), 3),
    }


def times(work: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each run, after a warm-up."""
    work()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return taken


if __name__ == "__main__":
    main()
