"""Which company of a completion moves the last digits of its logits while generating.

    python benchmarks/neighbours.py --seed 0

A token is drawn by a number that depends on no neighbour, from logits whose last digits may: a
product of other numbers of rows, or a sum over other numbers of keys, is added in another order.
Generates with SmolLM2-135M, for each number of threads: one completion of a prompt of 20 tokens
beside others of other prompts, each prompt run alone before (together they would be one product
more of other rows), and compares the logits of its next tokens with those beside 31 others of the
same lengths, bit by bit. First the others are fewer or more; then one of them has a longer
prompt, or all began earlier. Writes ``benchmarks/results/neighbours.json``.
"""

import argparse
import json
import os
import random
from typing import TYPE_CHECKING, Any

from alone import in_own_process
from result import write_result

if TYPE_CHECKING:
    import torch

PROMPT = 20
"""Tokens of the prompt whose completion is looked at."""

STEPS = 4
"""Tokens that its completion is followed for."""

USUAL = 32
ROWS = (1, 2, 4, 8, 12, 15, 16, 24, 40, 48, 56, 57, 64, 96, 128)
LONGER = (1, 16, 100, 500, 1000)
"""Tokens by which one prompt beside is longer."""

EARLIER = (1, 5, 16, 17)
"""Tokens that the completions beside are ahead."""


def main() -> None:
    """Measure for each number of threads, or for one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        print(json.dumps(measured(arguments.threads, arguments.seed)))
        return
    found = [
        in_own_process(__file__, ["--seed", str(arguments.seed), "--threads", str(threads)])
        for threads in range(1, (os.cpu_count() or 1) + 1)
    ]
    result = {
        "command": f"python benchmarks/neighbours.py --seed {arguments.seed}",
        "compared_with": f"{USUAL} rows of the same lengths",
        "threads": found,
    }
    write_result("neighbours", result)
    for one in found:
        print(one)


def measured(threads: int, seed: int) -> dict[str, Any]:
    """The largest difference of a logit for each company."""
    import torch

    from verigrad.policies.models import load_model

    torch.set_num_threads(threads)
    model = load_model("smollm2-135m", device="cpu").model
    vocabulary = model.get_input_embeddings().num_embeddings
    usual = followed(model, vocabulary, seed, rows=USUAL)

    def moved(**company: int) -> float:
        other = followed(model, vocabulary, seed, **{"rows": USUAL, **company})
        return float((other - usual).abs().max())

    return {
        "threads": threads,
        "torch": torch.__version__,
        "largest_logit": float(usual.abs().max()),
        "by_rows": {rows: moved(rows=rows) for rows in ROWS},
        "by_longer_prompt": {tokens: moved(longer=tokens) for tokens in LONGER},
        "by_earlier_completions": {tokens: moved(earlier=tokens) for tokens in EARLIER},
    }


def followed(
    model: Any, vocabulary: int, seed: int, *, rows: int, longer: int = 0, earlier: int = 0
) -> "torch.Tensor":
    """Logits ``[STEPS + 1, V]`` of the next tokens of the completion that is looked at.

    Args:
        model: what generates.
        vocabulary: how many tokens it knows.
        seed: of all tokens.
        rows: how many completions there are in all, each of a prompt of its own.
        longer: tokens by which the last of the other prompts is longer.
        earlier: tokens that the other completions are ahead.
    """
    import torch

    from verigrad.policies import continuation
    from verigrad.types import Prompt

    continuation.PROMPT_TOKENS_AT_ONCE = 1
    prompts = [
        Prompt(problem_id=str(row), token_ids=tuple(random.Random(f"{seed} {row}").choices(
            range(vocabulary), k=PROMPT + (longer if row == rows - 1 else 0))))
        for row in range(rows)
    ]  # fmt: skip
    last = rows - 1
    tokens = torch.randint(vocabulary, (earlier + STEPS, rows),
                           generator=torch.Generator().manual_seed(seed))  # fmt: skip
    tokens[earlier:, 0] = torch.arange(STEPS)
    found = []
    with torch.inference_mode():
        others = prompts[1:] if earlier else prompts
        generated = continuation.SharedContinuation(model, others, 1)
        for step in range(earlier):
            generated.advance(torch.arange(last), tokens[step, 1:])
        if earlier:
            generated.admit(prompts[:1], 1)
        place = last if earlier else 0
        found.append(generated.logits()[0][place].clone())
        for step in range(earlier, earlier + STEPS):
            given = tokens[step] if place == 0 else tokens[step].roll(-1)
            generated.advance(torch.arange(rows), given)
            logits, states = generated.logits()
            found.append(logits[states[place]].clone())
    return torch.stack(found)


if __name__ == "__main__":
    main()
