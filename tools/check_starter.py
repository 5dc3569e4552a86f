"""Checks that an exercise's shipped starter fails every test, and only for being unfilled.

Each test must be stopped by ``NotImplementedError``; those named ``test_given_...`` are about what
the learner is given, and must pass. Run it in the exercise's own environment.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def main() -> None:
    """Run the tests on the starter and exit with 1 when one ended in another way."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", sys.argv[1], f"--junitxml={report}"]
        output = run(command)
        if not report.exists():
            sys.exit(output)
        tests = list(ElementTree.parse(report).iter("testcase"))
    wrong = [test.get("name") for test in tests if not ends_as_it_should(test)]
    if wrong or not tests:
        print(output)
        sys.exit(f"starter: {len(wrong)} of {len(tests)} tests ended in another way: {wrong}")
    print(f"starter: each of {len(tests)} tests ended as it should for an unfilled file")


def run(command: list[str]) -> str:
    """All that a command prints, whatever its exit code."""
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout


def ends_as_it_should(test: ElementTree.Element) -> bool:
    """Whether a test on what is given passed, or any other met NotImplementedError."""
    outcome = [(part.tag, part.get("message", "")) for part in test if part.tag != "system-out"]
    if test.get("name", "").startswith("test_given_"):
        return outcome == []
    return len(outcome) == 1 and outcome[0][1].startswith("NotImplementedError")


if __name__ == "__main__":
    main()
