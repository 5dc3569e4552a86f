"""Does ``torch.compile`` pay: training passes and decoding of SmolLM2-135M, plain and compiled.

    python benchmarks/compiled.py --seed 0

Each layer of the model is compiled for shapes that vary, as lengths do from pass to pass. The plain
and the compiled side run one after the other in processes of their own, the compiled one without a
cache of what was compiled before, and for at most ``--timeout`` seconds. Writes
``benchmarks/results/compiled.json``: the seconds that compiling takes, those of a training pass and
of a step of decoding without and with it, after how many of them it has paid, and the largest
difference of log-probs; or, in words, what went wrong.
"""

import argparse
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verigrad.algorithms import Algorithm
    from verigrad.batch import Batch

from result import write_result

WORD = {"plain": "measured", "compiled": "compiled"}
KINDS = {"training": "passes", "decoding": "steps"}
PROMPT_TOKENS = 40
COMPLETIONS = 8
LENGTHS = (16, 32, 24, 28)
"""Of the completions of each training pass, which are those of one prompt."""

PROMPTS, DECODED = 4, 16
"""Prompts of 4 tokens that are decoded side by side, and how many tokens further."""

ROUNDS = 4
"""Over all lengths; the first compiles, and is the warm-up of the plain side."""

RECOMPILE_LIMIT = 256
"""By itself torch gives up after 8 variants and runs what is beyond them as it is."""

Found = dict[str, Any]


def main() -> None:
    """Measure both sides, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("--side", choices=["plain", "compiled"])
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    if arguments.side:
        for part in measured(arguments.side, arguments.folder, arguments.seed):
            print(json.dumps(part), flush=True)
    else:
        record(arguments.seed, arguments.timeout)


def record(seed: int, timeout: int) -> None:
    """Run both sides and write what was found."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        sides = {side: run_side(side, folder, seed, timeout) for side in ("plain", "compiled")}
    if "problem" in sides["plain"]:
        raise SystemExit(sides["plain"]["problem"])
    result = {
        "command": f"python benchmarks/compiled.py --seed {seed} --timeout {timeout}",
        "compiled": "each layer, by layer.compile(dynamic=True)",
        **{kind: verdict(kind, sides["plain"], sides["compiled"]) for kind in KINDS},
        "largest_difference_of_log_probs": sides["compiled"].get("largest_difference"),
        "sides": sides,
        "load_before": load,
    }
    write_result("compiled", result)
    for kind in KINDS:
        print(f"{kind}: {result[kind]['words']}")


def run_side(side: str, folder: str, seed: int, timeout: int) -> Found:
    """One side in a process of its own, as far as it came, and the problem if there was one."""
    command = [sys.executable, __file__, "--side", side, "--folder", folder, "--seed", str(seed)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"},
    )  # fmt: skip
    problem = {}
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        # The compilers that it has started belong to its session.
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        problem = {"problem": f"not {WORD[side]} within {timeout} s"}
    else:
        if process.returncode:
            problem = {"problem": f"not {WORD[side]}: {raised(errors)}"}
    found: Found = {}
    for line in output.splitlines():
        found |= json.loads(line)
    # "torch._dynamo hit config.recompile_limit": it runs without compiling from there on.
    warnings = [line[line.index("hit ") :] for line in errors.splitlines() if "_dynamo hit" in line]
    return found | problem | {"warnings": warnings}


def raised(errors: str) -> str:
    """The line of a traceback that says what was raised; hints of torch may follow it."""
    lines = [line for line in errors.splitlines() if re.match(r"[\w.]+: ", line)]
    return lines[-1] if lines else "no word about it"


def measured(side: str, folder: Path, seed: int) -> Iterator[Found]:
    """Each part as soon as it is known."""
    import torch

    from verigrad.engines import Draws, LocalEngine
    from verigrad.hashing import Purpose
    from verigrad.policies.causal_lm import CausalLM
    from verigrad.policies.models import load_model
    from verigrad.training.step import accumulate
    from verigrad.types import Prompt, Sampling

    yield {"threads": torch.get_num_threads(), "torch": torch.__version__}
    loaded = load_model("smollm2-135m", device="cpu")
    policy = CausalLM(loaded.model, loaded.tokenizer)
    algorithm, batches = made_up(seed, policy.module.get_input_embeddings().num_embeddings)
    if side == "compiled":
        # Each layer's own number in the cache makes it a layer of its own to the compiler.
        torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
        for layer in policy.module.base_model.layers:
            layer.compile(dynamic=True)

    def train() -> None:
        for batch in batches:
            policy.module.zero_grad(set_to_none=True)
            accumulate(policy, batch, algorithm, temperature=1.0, token_budget=2048)

    yield {"training": rounds(train, len(batches))}
    torch.save(policy.score(batches[0], 1.0).log_probs.detach(), folder / side)
    if side == "compiled":
        difference = torch.load(folder / "compiled") - torch.load(folder / "plain")
        yield {"largest_difference": float(difference.abs().max())}
    engine = LocalEngine(policy)
    prompts = [
        Prompt(problem_id=str(slot), token_ids=(slot, 1, 2, 3)) for slot in range(10, 10 + PROMPTS)
    ]
    sampling = Sampling(max_new_tokens=DECODED, stop_token_ids=())
    draws = Draws(seed=seed, purpose=Purpose.TRAIN, step=1)
    decoding = rounds(lambda: engine.generate(prompts, COMPLETIONS, sampling, draws), DECODED)
    yield {"decoding": decoding}


def made_up(seed: int, vocabulary: int) -> "tuple[Algorithm, list[Batch]]":
    """One batch per length, each of one prompt and made-up completions with signal."""
    from verigrad.algorithms import algorithm_from
    from verigrad.batch import make_batch
    from verigrad.config.algorithm import AlgorithmConfig
    from verigrad.types import Completion, Finish, Group, Problem, Prompt, Rollout, Verdict

    drawn = random.Random(seed)
    algorithm = algorithm_from(AlgorithmConfig(), max_new_tokens=max(LENGTHS))

    def tokens(length: int) -> tuple[int, ...]:
        return tuple(drawn.randrange(vocabulary) for _ in range(length))

    def group(length: int) -> Group:
        prompt = Prompt(problem_id="made-up", token_ids=tokens(PROMPT_TOKENS))
        completions = [
            Completion(
                token_ids=tokens(length), log_probs=(0.0,) * length, finish=Finish.TRUNCATED,
                policy_version=0, text="",
            )
            for _ in range(COMPLETIONS)
        ]  # fmt: skip
        rollouts = tuple(
            Rollout(prompt=prompt, completion=one, verdict=Verdict.scored(number % 2))
            for number, one in enumerate(completions)
        )
        problem = Problem(id="made-up", prompt="", reference=None)
        return Group(problem=problem, rollouts=rollouts)

    batches = [make_batch([group(length)], algorithm) for length in LENGTHS]
    return algorithm, [batch for batch in batches if batch is not None]


def rounds(work: Callable[[], object], units: int) -> Found:
    """Seconds of a first round, and of a unit in each later one; what was compiled in all."""
    from torch._dynamo.utils import counters

    counters.clear()
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return {
        "first_round": taken[0],
        "units": units,
        "each": [seconds / units for seconds in taken[1:]],
        "graphs": counters["stats"]["unique_graphs"],
        "graph_breaks": {
            reason.split("\n")[0]: times for reason, times in counters["graph_break"].items()
        },
    }


def verdict(kind: str, plain: Found, compiled: Found) -> Found:
    """Whether compiling pays, in numbers and in words."""
    before = statistics.median(plain[kind]["each"])
    if kind not in compiled:
        return {"plain_seconds": before, "words": compiled["problem"]}
    after = statistics.median(compiled[kind]["each"])
    took = compiled[kind]["first_round"] - compiled[kind]["units"] * after
    paid = math.ceil(took / (before - after)) if after < before else None
    pays = f"pays after {paid:,} {KINDS[kind]}" if paid else "never pays: it is no faster"
    return {
        "plain_seconds": before,
        "compiled_seconds": after,
        "compile_seconds": took,
        "paid_after": paid,
        "words": f"{before:.3g} s plain, {after:.3g} s compiled; compiling takes {took:.0f} s and "
        f"{pays}",
    }


if __name__ == "__main__":
    main()
