"""A task: problems, and a verifier that says what a completion is worth."""

import json
from pathlib import Path

from verigrad import Problem, ProblemTask
from verigrad.verifiers import last_number, weighted

ROWS = Path(__file__).with_name("problems.jsonl")


def problems() -> list[Problem]:
    """One problem per row: its id, what the model sees, and what only the verifier sees."""
    with ROWS.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return [
        Problem(
            id=f"sums/{number}",
            prompt=f"{row['question']} Answer with just the number.",
            reference=row["answer"],
        )
        for number, row in enumerate(rows, start=1)
    ]


def is_short(completion: str, reference: int) -> bool:
    """Whether a completion is little more than a number; any function like this is a verifier."""
    return 0 < len(completion.strip()) <= 10


# The reward is 1 for the right number, and 0.1 for brevity; each part is logged by its name.
sums = ProblemTask(
    "sums", problems(), weighted({"right": (1.0, last_number), "short": (0.1, is_short)})
)
