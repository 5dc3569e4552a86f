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


def is_bare(completion: str, reference: int) -> bool:
    """Whether a completion is the right number alone; any function like this is a verifier."""
    return completion.strip().rstrip(".") == str(reference)


# The reward is 1 for the right number, and 0.1 more for nothing beside it; each part is logged by
# its name. Nothing is paid without the right number: `verigrad verify` sees to it.
sums = ProblemTask(
    "sums", problems(), weighted({"right": (1.0, last_number), "bare": (0.1, is_bare)})
)
