"""The golden vectors themselves: every one of them is run by some test."""

import ast
from pathlib import Path

from golden import IDS, ids_of

TESTS = Path(__file__).parent


def named_in(path: Path) -> set[str]:
    """The kinds and ids whose cases the tests of a file take."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    return {
        argument.value
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "cases"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }


def test_every_golden_vector_is_run_by_a_test() -> None:
    names = set().union(*(named_in(path) for path in TESTS.glob("test_*.py")))
    assert set(IDS) - set(ids_of(*names)) == set()


def test_the_golden_vectors_are_all_there_and_none_is_there_twice() -> None:
    assert len(IDS) == len(set(IDS)) == 229
