"""The vocabulary head in chunks beside the plain one that makes a table of all logits.

    python benchmarks/head.py --seed 0

Log-probs and entropy of 4,096 tokens of a vocabulary of 151,936 from 256 hidden units, forwards and
backwards: seconds and peak memory beyond what there was before, each side in a process of its own,
and the largest difference of the gradients, relative to the largest entry. Writes
``benchmarks/results/head.json``.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from alone import in_own_process
from result import write_result

if TYPE_CHECKING:
    from torch import Tensor

TOKENS, VOCABULARY, HIDDEN = 4096, 151_936, 256
REPEATS = 3


def main() -> None:
    """Measure both sides, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--side", choices=["chunks", "plain"])
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(measured(arguments.side, arguments.seed)))
        return
    record = {
        "command": f"python benchmarks/head.py --seed {arguments.seed}",
        "tokens": TOKENS,
        "vocabulary": VOCABULARY,
        "hidden": HIDDEN,
        **{
            side: in_own_process(__file__, ["--side", side, "--seed", str(arguments.seed)])
            for side in ("chunks", "plain")
        },
        "gradients_apart": apart(arguments.seed),
    }
    write_result("head", record)
    for side in ("chunks", "plain"):
        found = record[side]
        print(f"{side}: {statistics.median(found['seconds']):.2f} s, {found['gb']:.2f} GB")


def scores_of(side: str) -> Callable[..., "tuple[Tensor, Tensor]"]:
    """The way of a side from hidden states to log-probs and entropy."""
    from verigrad.core.head import head_scores
    from verigrad.core.logprobs import entropy, token_log_probs

    def plain(
        hidden: "Tensor", weight: "Tensor", bias: None, ids: "Tensor", temperature: float
    ) -> "tuple[Tensor, Tensor]":
        del bias
        logits = hidden @ weight.T
        return token_log_probs(logits, ids, temperature), entropy(logits.detach(), temperature)

    return head_scores if side == "chunks" else plain


def leaves(tokens: int, vocabulary: int, seed: int) -> "tuple[Tensor, Tensor, Tensor]":
    """Hidden states, the weights of the head, and the tokens."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, HIDDEN, generator=generator)
    weight = 0.05 * torch.randn(vocabulary, HIDDEN, generator=generator)
    ids = torch.randint(vocabulary, (tokens,), generator=generator)
    return hidden.requires_grad_(), weight.requires_grad_(), ids


def gradients(side: str, hidden: "Tensor", weight: "Tensor", ids: "Tensor") -> "list[Tensor]":
    """Of the sum of all log-probs, with respect to hidden states and weights."""
    import torch

    log_probs, _ = scores_of(side)(hidden, weight, None, ids, 1.0)
    return list(torch.autograd.grad(log_probs.sum(), [hidden, weight]))


def measured(side: str, seed: int) -> dict[str, Any]:
    """Seconds of each repeat after a warm-up, and the most memory that one took."""
    from verigrad.training.trial import peak

    given = leaves(TOKENS, VOCABULARY, seed)
    runs = [peak(lambda: gradients(side, *given), "cpu") for _ in range(1 + REPEATS)]
    return {
        "seconds": [seconds for seconds, _ in runs[1:]],
        "gb": max(taken for _, taken in runs if taken is not None) / 1e9,
    }


def apart(seed: int) -> float:
    """The largest difference of any gradient, with fewer tokens and a smaller vocabulary."""
    given = leaves(2048, 20_000, seed)
    found, wanted = (gradients(side, *given) for side in ("chunks", "plain"))
    return max(
        float((one - other).abs().max() / other.abs().max())
        for one, other in zip(found, wanted, strict=True)
    )


if __name__ == "__main__":
    main()
