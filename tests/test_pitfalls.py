"""The table of known mistakes is whole, and what it names exists."""

import ast
import sys

import pytest
from pitfalls import PITFALLS
from running import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools"))
from mutations import MUTATIONS, Mutation


def functions_of(file: str) -> set[str]:
    """The names of the functions that a test file defines."""
    tree = ast.parse((REPOSITORY / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_known_mistake_is_either_caught_or_impossible() -> None:
    assert list(PITFALLS) == list(range(1, 58))
    for pitfall in PITFALLS.values():
        assert bool(pitfall.tests) != bool(pitfall.cannot)


@pytest.mark.parametrize("number", PITFALLS)
def test_the_tests_that_catch_a_mistake_exist(number: int) -> None:
    for test in PITFALLS[number].tests:
        file, _, name = test.partition("::")
        assert name in functions_of(file), test


def test_every_mistake_that_can_occur_is_planted() -> None:
    assert {mutation.pitfall for mutation in MUTATIONS} == {
        number for number, pitfall in PITFALLS.items() if pitfall.tests
    }


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[str(each) for each in MUTATIONS])
def test_what_a_planted_mistake_replaces_stands_in_the_source_once(mutation: Mutation) -> None:
    source = (REPOSITORY / "src" / "verigrad" / mutation.file).read_text()
    assert source.count(mutation.old) == 1
    ast.parse(source.replace(mutation.old, mutation.new))
