"""Make a few problems of every dataset of reasoning-gym, and check that references score 1.

python tools/reasoning_gym_walk.py [--problems 3] [NAME ...]

Prints one line per dataset that falls short, and ends with 1 if there is any that is not known to.
"""

import argparse
import sys
import time

from verigrad.errors import TaskError
from verigrad.tasks import reasoning
from verigrad.tasks.reasoning import reasoning_gym_names, reasoning_gym_task
from verigrad.verifiers import verify


def shortfall(name: str, problems: int) -> str:
    """What is wrong with a dataset's problems, or nothing."""
    task = reasoning_gym_task(name)
    for index in range(problems):
        problem = task.problem(0, index)
        reasoning._dataset.cache_clear()
        if problem != task.problem(0, index):
            return f"problem {index} is another one the second time"
        answer = problem.metadata["answer"]
        verdict = verify(task.verifier, str(answer), problem.reference)
        if verdict.reward != 1.0:
            return f"the reference {answer!r:.60} gets {verdict.reward} {verdict.detail:.120}"
        if (verify(task.verifier, "", problem.reference).reward or 0.0) > 0:
            return "an empty answer is paid"
    return ""


def main() -> int:
    """Walk the datasets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--problems", type=int, default=3)
    arguments = parser.parse_args()
    names = arguments.names or reasoning_gym_names()
    short = 0
    for name in names:
        started = time.perf_counter()
        try:
            found = shortfall(name, arguments.problems)
        except TaskError as error:
            found = str(error)
        seconds = time.perf_counter() - started
        if found or seconds > 5:
            print(f"{name}: {found or 'full marks'} ({seconds:.1f} s)", flush=True)
        short += bool(found)
    print(f"{len(names) - short} of {len(names)} datasets give their references full marks")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
