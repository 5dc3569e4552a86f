"""Decoding with SmolLM2-135M beside the plain loop of a library: tokens per second, and the logits.

    python benchmarks/decode.py --seed 0

32 rows, 8 completions of each of 4 prompts of 40 tokens, 32 tokens further. The plain loop gives
every row its own prompt, keeps keys and values in the library's growing cache, and draws with
``torch.multinomial``. The other side is what training generates with. Both take the tokens that
the latter drew, so that the logits of each step can be compared. Five rounds of each in turn, in
one process. Writes ``benchmarks/results/decode.json``: the seconds of each round without the
prompts, and how far the logits are apart.
"""

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from result import write_result

if TYPE_CHECKING:
    from torch import Tensor

PROMPTS, COMPLETIONS, PROMPT_TOKENS, NEW_TOKENS = 4, 8, 40, 32
ROUNDS = 5


def main() -> None:
    """Measure both and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found = measured(arguments.seed)
    seconds = {side: statistics.median(found[side]) for side in ("plain", "verigrad")}
    tokens = PROMPTS * COMPLETIONS * (NEW_TOKENS - 1)
    record = {
        "command": f"python benchmarks/decode.py --seed {arguments.seed}",
        **found,
        "tokens_per_second": {side: round(tokens / took) for side, took in seconds.items()},
        "times_as_fast": round(seconds["plain"] / seconds["verigrad"], 2),
    }
    write_result("decode", record)
    print(record["tokens_per_second"], "tokens per second,", record["times_as_fast"], "times")
    print(f"logits of up to {found['largest_logit']:.0f} differ by {found['logits_apart']:.1e}")


def measured(seed: int) -> dict[str, Any]:
    """Seconds of each round of either side, and how far their logits are apart."""
    import torch

    from verigrad import machine
    from verigrad.policies.models import load_model

    machine.keep_freed()
    model = load_model("smollm2-135m", device="cpu").model
    numbers = random.Random(seed)
    vocabulary = model.get_input_embeddings().num_embeddings
    prompts = [numbers.choices(range(vocabulary), k=PROMPT_TOKENS) for _ in range(PROMPTS)]
    ours: list[float] = []
    plain: list[float] = []
    apart = largest = 0.0
    with torch.inference_mode():
        for _ in range(ROUNDS):
            logits, tokens, seconds = by_verigrad(model, prompts, seed)
            ours.append(seconds)
            expected, seconds = by_plain_loop(model, prompts, tokens)
            plain.append(seconds)
            apart = max(apart, *(float((a - b).abs().max())
                                 for a, b in zip(logits, expected, strict=True)))  # fmt: skip
            largest = max(largest, *(float(some.abs().max()) for some in expected))
    return {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "plain": plain,
        "verigrad": ours,
        "logits_apart": apart,
        "largest_logit": largest,
    }


def by_verigrad(
    model: Any, prompts: Sequence[Sequence[int]], seed: int
) -> tuple[list["Tensor"], list["Tensor"], float]:
    """Logits ``[rows, V]`` and tokens ``[rows]`` of each step, and seconds after the prompts."""
    import torch

    from verigrad.core.sampling import draw_tokens, uniform
    from verigrad.policies.continuation import SharedContinuation
    from verigrad.types import Prompt

    rows = torch.arange(PROMPTS * COMPLETIONS)
    keys = torch.randint(2**62, rows.shape, generator=torch.Generator().manual_seed(seed))
    generated = SharedContinuation(
        model, [Prompt(problem_id="", token_ids=tuple(prompt)) for prompt in prompts], COMPLETIONS
    )
    logits, tokens = [], []
    started = 0.0
    for step in range(NEW_TOKENS):
        some, states = generated.logits()
        logits.append(some[states])
        tokens.append(draw_tokens(some, states, uniform(keys, step)))
        if step == 0:
            started = time.perf_counter()
        if step < NEW_TOKENS - 1:
            generated.advance(rows, tokens[-1])
    return logits, tokens, time.perf_counter() - started


def by_plain_loop(
    model: Any, prompts: Sequence[Sequence[int]], tokens: Sequence["Tensor"]
) -> tuple[list["Tensor"], float]:
    """As :func:`by_verigrad`, for tokens that are given."""
    import torch

    ids = torch.tensor(prompts).repeat_interleave(COMPLETIONS, dim=0)
    output = model(input_ids=ids, use_cache=True, logits_to_keep=1)
    logits = []
    started = 0.0
    for step, taken in enumerate(tokens):
        logits.append(output.logits[:, -1])
        torch.multinomial(logits[-1].softmax(dim=-1), 1)
        if step == 0:
            started = time.perf_counter()
        if step < NEW_TOKENS - 1:
            output = model(input_ids=taken.unsqueeze(1), cache=output.cache, use_cache=True)
    return logits, time.perf_counter() - started


if __name__ == "__main__":
    main()
