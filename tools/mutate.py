"""Plant known mistakes in a copy of the sources, one at a time, and see a test turn red for each.

    python tools/mutate.py                 all of them; minutes
    python tools/mutate.py --only 13,24    those of some pitfalls

``mutations.py`` holds the mistakes, ``tests/pitfalls.py`` the tests that catch them. Ends with 1
when a mistake goes unseen, or when a named test is red without any.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from mutations import MUTATIONS, Mutation  # noqa: E402
from pitfalls import PITFALLS  # noqa: E402

TESTS_FAILED = 1
"""What pytest ends with when tests ran and some failed; a file that cannot be imported gives 2."""


def main() -> int:
    """Run the mutations that were asked for; 0 when each of them is caught."""
    parser = argparse.ArgumentParser(description="plant known mistakes and see tests turn red")
    parser.add_argument("--only", metavar="13,24", help="numbers of pitfalls; all without it")
    only = parser.parse_args().only
    numbers = {int(number) for number in only.split(",")} if only else set(PITFALLS)
    chosen = [mutation for mutation in MUTATIONS if mutation.pitfall in numbers]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(REPOSITORY / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        named = {test for mutation in chosen for test in PITFALLS[mutation.pitfall].tests}
        code, output = run_tests(source, sorted(named))
        if code != 0:
            print(f"the named tests do not pass as it is:\n{output}")
            return 1
        unseen = [mutation for mutation in chosen if not is_caught(mutation, source)]
    print(f"{len(chosen) - len(unseen)} of {len(chosen)} mistakes caught")
    return 1 if unseen else 0


def is_caught(mutation: Mutation, source: Path) -> bool:
    """Plant a mistake, run the tests that are to catch it, and take it out again."""
    file = source / "verigrad" / mutation.file
    original = file.read_text()
    if original.count(mutation.old) != 1:
        print(f"LOST    {mutation}\n        its place occurs {original.count(mutation.old)} times")
        return False
    file.write_text(original.replace(mutation.old, mutation.new))
    try:
        code, output = run_tests(source, [*PITFALLS[mutation.pitfall].tests], "--exitfirst")
    finally:
        file.write_text(original)
    if code != TESTS_FAILED:
        print(f"UNSEEN  {mutation}\n        pytest ended with {code}\n{output if code else ''}")
        return False
    red = re.search(r"^FAILED (.*)", output, re.MULTILINE)
    print(f"caught  {mutation}\n        {red.group(1) if red else output[-300:]}", flush=True)
    return True


def run_tests(source: Path, tests: Sequence[str], *options: str) -> tuple[int, str]:
    """Run some tests on the sources in a folder; pytest's exit code and output."""
    command = [
        *(sys.executable, "-B", "-m", "pytest", "-q", "--no-showlocals", "--tb=no"),
        *("-p", "no:cacheprovider", *options, *tests),
    ]
    environment = os.environ | {"PYTHONPATH": str(source), "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
