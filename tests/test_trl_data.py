"""Reward functions written for TRL that check rows of data: they get the columns by their names."""

from pathlib import Path

import pytest

from verigrad.config import VerifierConfig, config_from
from verigrad.tasks import load_task, solution_of_problem, with_verifier
from verigrad.tasks.data import DataTask
from verigrad.types import Problem
from verigrad.verifiers import TrlReward, verify

ROWS = "question,gold,hint\nWhat is 1 + 1?,2,two\nWhat is 1 + 2?,3,three\n"
REWARDS = """
def hinted(prompts, completions, hint, **kwargs):
    return [float(h in c) for c, h in zip(completions, hint)]

def right(completions, gold, **kwargs):
    return [float(g == c) for c, g in zip(completions, gold)]

def aliased(completions, solution, hint, **kwargs):
    return [float(s == c) for c, s in zip(completions, solution)]

def longest(completions, **kwargs):
    return [float(len(c) >= len(p)) for c, p in zip(completions, kwargs["prompts"])]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder that holds the rows and the rewards, with the cache beside it."""
    monkeypatch.setenv("VERIGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text(ROWS)
    Path("rewards.py").write_text(REWARDS)


def load(verifier: str, **data: object) -> DataTask:
    keys = {
        "task": "rows.csv",
        "model": "tabular",
        "data": {"prompt": "question", "answer": "gold", "verifier": verifier} | data,
    }
    config = config_from(keys, source="run.toml", base=Path.cwd())
    task = load_task(config.task, config.data)
    assert isinstance(task, DataTask)
    return task


def pays(task: DataTask, problem: Problem, completion: str) -> float | None:
    return verify(task.verifier, completion, problem.reference).reward


@pytest.mark.parametrize(
    ("function", "paid", "unpaid"),
    [
        ("hinted", "It is three.", "3"),
        ("right", "3", "three"),
        ("aliased", "3", "three"),
        ("longest", "x" * 14, "x" * 13),
    ],
)
def test_a_reward_function_gets_the_columns_that_it_names(
    function: str, paid: str, unpaid: str
) -> None:
    task = load(f"rewards.py:{function}")
    assert (pays(task, task[1], paid), pays(task, task[1], unpaid)) == (1.0, 0.0)


def test_a_reward_function_of_verifier_name_gets_the_same_as_one_of_the_data() -> None:
    name = f"{Path.cwd() / 'rewards.py'}:hinted"
    task = with_verifier(load("exact"), VerifierConfig(name=name))
    assert isinstance(task, DataTask)
    assert task[1].reference == {"gold": "3", "hint": "three", "prompt": "What is 1 + 2?"}
    assert task[1].reference == load("rewards.py:hinted")[1].reference


def test_the_right_answer_stays_the_answer_whatever_column_a_function_wants() -> None:
    task = load("rewards.py:aliased")
    assert solution_of_problem(task, task[1]) == "3"


def test_completions_are_messages_where_prompts_are() -> None:
    verifier = load("rewards.py:right", system="Be brief.").verifier
    assert isinstance(verifier, TrlReward)
    assert verifier.conversational
