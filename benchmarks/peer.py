"""Time and memory of one optimiser step, side by side with TRL's GRPOTrainer.

    python benchmarks/peer.py --work A --seed 0

Both sides run on this machine one after the other, with the same weights, prompts, completions per
problem, lengths (no completion may stop early), optimiser and rewards, each with the number of CPU
threads that is faster for it. The reward gives signal to half of the groups, or to all with
``--signal all``. Writes ``benchmarks/results/peer-A-half.json``. Without ``--work`` all four are
measured, with each kind of signal. Needs ``pip install "verigrad[bench]"``.

Where there is a GPU, both run on it, their layers in bfloat16 and their weights in float32, and
memory is the GPU's. No GPU was at hand to try that.
"""

import argparse
import json
import os
import random
import resource
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from alone import in_own_process
from result import write_result

WARM_UP = 1
MEASURED = 5


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one optimiser step does."""

    problems: int
    completions: int
    prompt_tokens: int
    new_tokens: int
    model: dict[str, int] | None
    """The size of a new model, or None for SmolLM2-135M."""


WORKS = {
    "A": Work(problems=4, completions=8, prompt_tokens=40, new_tokens=32, model=None),
    "B": Work(problems=2, completions=16, prompt_tokens=256, new_tokens=32, model=None),
    "C": Work(
        problems=8, completions=8, prompt_tokens=16, new_tokens=8,
        model={"hidden_size": 64, "vocab_size": 512, "num_hidden_layers": 2},
    ),
    "D": Work(
        problems=1, completions=8, prompt_tokens=32, new_tokens=512,
        model={"hidden_size": 256, "vocab_size": 151_936, "num_hidden_layers": 2},
    ),
}  # fmt: skip


def main() -> None:
    """Measure both sides, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", choices=sorted(WORKS), action="append")
    parser.add_argument("--signal", choices=["half", "all"], action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side", choices=["verigrad", "trl"])
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    for name in arguments.work or sorted(WORKS):
        for signal in arguments.signal or ["half", "all"]:
            if arguments.side:
                side = verigrad_steps if arguments.side == "verigrad" else trl_steps
                result = side(WORKS[name], arguments.folder, signal, arguments.seed)
                print(json.dumps(result | {"peak_gb": peak_gb()}))
            elif signal == "all" or WORKS[name].problems > 1:
                compare(name, signal, arguments.seed)


def compare(name: str, signal: str, seed: int) -> None:
    """Run both sides, each in a process of its own, and write what they took."""
    with tempfile.TemporaryDirectory() as folder:
        make_model(WORKS[name], Path(folder) / "model")
        sides = {side: run_side(side, name, signal, seed, folder) for side in ("verigrad", "trl")}
    ours, peer = sides["verigrad"], sides["trl"]
    seconds = {side: statistics.median(found["seconds"]) for side, found in sides.items()}
    ratio = seconds["trl"] / seconds["verigrad"]
    record = {
        "command": f"python benchmarks/peer.py --work {name} --signal {signal} --seed {seed}",
        "work": asdict(WORKS[name]),
        "signal": signal,
        **sides,
        "tokens_per_second": {side: round(ours["tokens"] / took) for side, took in seconds.items()},
        "time_trl_over_verigrad": round(ratio, 2),
        "memory_verigrad_over_trl": round(ours["peak_gb"] / peer["peak_gb"], 2),
    }
    write_result(f"peer-{name}-{signal}", record)
    print(f"{name}, signal in {signal}: {ratio:.1f} times as fast as TRL, "
          f"{record['memory_verigrad_over_trl']} of its memory")  # fmt: skip


def run_side(side: str, name: str, signal: str, seed: int, folder: str) -> dict[str, Any]:
    """One side in a process of its own."""
    options = [
        "--work", name, "--signal", signal, "--seed", str(seed),
        "--side", side, "--folder", folder,
    ]  # fmt: skip
    return in_own_process(__file__, options)


def make_model(work: Work, folder: Path) -> None:
    """A folder with the model and a tokenizer without a chat template."""
    if work.model is None:
        from verigrad.policies.models import load_model

        loaded = load_model("smollm2-135m", device="cpu")
        loaded.tokenizer.chat_template = None
        loaded.model.save_pretrained(folder)
        loaded.tokenizer.save_pretrained(folder)
        return
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {str(number): number for number in range(work.model["vocab_size"] - 2)}
    words |= {"<pad>": len(words), "<eos>": len(words) + 1}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(0)
    config = LlamaConfig(
        **work.model,
        intermediate_size=4 * work.model["hidden_size"],
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=words["<eos>"],
        pad_token_id=words["<pad>"],
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
    ).save_pretrained(folder)


def prompts(work: Work, seed: int) -> list[str]:
    """One prompt per problem of a step; a digit is a token of each tokenizer used here."""
    digits = random.Random(seed)
    between = "" if work.model is None else " "
    return [
        between.join(str(digits.randrange(10)) for _ in range(work.prompt_tokens))
        for _ in range(work.problems)
    ]


def rewards(texts: list[str], slot: int, work: Work, signal: str) -> list[float]:
    """Of one group's completions: differing by length of text, or all alike without signal."""
    silent = signal == "half" and slot % 2 == 1
    return [1.0 if silent else float(len(text) % 7) for text in texts]


def verigrad_steps(work: Work, folder: Path, signal: str, seed: int) -> dict[str, Any]:
    """Seconds of each measured step of verigrad's own loop."""
    import torch

    import verigrad
    from verigrad.config import config_from
    from verigrad.engines import LocalEngine
    from verigrad.training.folder import make_folder
    from verigrad.training.progress import Progress
    from verigrad.training.run import new_state
    from verigrad.training.setup import prepare
    from verigrad.training.trainer import Trainer
    from verigrad.types import Problem

    texts = prompts(work, seed)

    def verifier(completion: str, reference: object) -> float:
        return rewards([completion], int(str(reference)), work, signal)[0]

    task = verigrad.ProblemTask(
        name="peer",
        problems=[
            Problem(id=str(slot), prompt=text, reference=str(slot))
            for slot, text in enumerate(texts)
        ],
        verifier=verifier,
    )
    config = config_from(
        {
            "task": {"name": "python:peer", "held_out": 0.0},
            "model": str(folder / "model"),
            "algorithm": "grpo",
            "run": {"steps": WARM_UP + MEASURED, "seed": seed, "folder": str(folder / "run")},
            "sampling": {
                "problems": work.problems,
                "completions": work.completions,
                "max_new_tokens": work.new_tokens,
            },
            "optimizer": {"learning_rate": 1e-6},
            "evaluation": {"every": 0, "problems": 1},
            "checkpoint": {"every": 0},
        },
        source="benchmark",
        base=folder,
    )
    setup = prepare(config, task)
    setup = replace(setup, sampling=replace(setup.sampling, stop_token_ids=()))
    run_folder = make_folder(config.run.folder, "peer")
    trainer = Trainer(
        setup, new_state(setup), LocalEngine(setup.policy), run_folder,
        Progress(config.run.steps, quiet=True),
    )  # fmt: skip
    for _ in range(WARM_UP + MEASURED):
        trainer._step()
    lines = [json.loads(line) for line in run_folder.metrics.read_text().splitlines()]
    return {
        "seconds": [line["time/step"] for line in lines[WARM_UP:]],
        "generate": [line["time/generate"] for line in lines[WARM_UP:]],
        "device": setup.decisions.device,
        "threads": torch.get_num_threads(),
        "groups_with_signal": lines[-1]["groups/with_signal"],
        "tokens": lines[-1]["tokens/generated"],
    }


def trl_steps(work: Work, folder: Path, signal: str, seed: int) -> dict[str, Any]:
    """Seconds of each measured step of TRL's loop, with the faster number of threads."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    texts = prompts(work, seed)
    slots = {text: slot for slot, text in enumerate(texts)}

    def reward(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [
            rewards([completion], slots[prompt], work, signal)[0]
            for prompt, completion in zip(prompts, completions, strict=True)
        ]

    on_gpu = torch.cuda.is_available()
    tried = [torch.get_num_threads()] if on_gpu else [*range(1, (os.cpu_count() or 1) + 1)]
    seconds: list[float] = []

    class Clock(TrainerCallback):
        def on_step_begin(self, *arguments: Any, **options: Any) -> None:
            step = len(seconds) - WARM_UP
            if 0 <= step < len(tried):
                torch.set_num_threads(tried[step])
            elif step == len(tried):
                times = seconds[WARM_UP:]
                torch.set_num_threads(tried[times.index(min(times))])
            self.started = time.perf_counter()

        def on_step_end(self, *arguments: Any, **options: Any) -> None:
            if on_gpu:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - self.started)

    rows = work.problems * work.completions
    steps = WARM_UP + len(tried) + MEASURED
    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=rows,
        num_generations=work.completions,
        gradient_accumulation_steps=1,
        max_completion_length=work.new_tokens,
        generation_kwargs={"min_new_tokens": work.new_tokens},
        temperature=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=1e-6,
        max_steps=steps,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to=[],
        logging_steps=1000,
        disable_tqdm=True,
        shuffle_dataset=False,
        seed=seed,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(folder / "model"),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": texts * steps}),
        callbacks=[Clock()],
    )
    trainer.train()
    return {"seconds": seconds[-MEASURED:], "threads": torch.get_num_threads()}


def peak_gb() -> float:
    """Peak in GB of the memory of the GPU, or of this process's resident memory without one."""
    import torch

    if torch.cuda.is_available():
        return round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2)


if __name__ == "__main__":
    main()
