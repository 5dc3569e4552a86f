"""The datasets of reasoning-gym, where the package is installed; without it, what is said."""

from importlib.util import find_spec

import pytest

from verigrad.cli import main
from verigrad.config import TaskConfig
from verigrad.errors import TaskError
from verigrad.tasks import load_task, problem_at, split
from verigrad.verifiers import verify

HERE = find_spec("reasoning_gym") is not None
needed = pytest.mark.skipif(not HERE, reason="needs reasoning-gym")


@pytest.mark.skipif(HERE, reason="reasoning-gym is installed")
def test_a_missing_package_is_named_with_the_command_that_installs_it(capsys):
    with pytest.raises(TaskError, match=r'package reasoning_gym, .*: pip install "verigrad\[reas'):
        load_task(TaskConfig(name="reasoning_gym:chain_sum"))
    assert main(["tasks", "reasoning_gym"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@needed
def test_a_dataset_is_a_task_with_its_own_score():
    task = load_task(TaskConfig(name="reasoning_gym:chain_sum"))
    sides = split(task, 0.2, 5)
    problem = problem_at(sides.training, 0, 3)
    answer = problem.metadata["answer"]
    assert verify(task.verifier, f"So <answer>{answer}</answer>", problem.reference).reward == 1.0
    assert verify(task.verifier, answer, problem.reference).reward == 1.0
    assert verify(task.verifier, "", problem.reference).status == "unparsable"
    assert len(sides.held_out) == 5


@needed
def test_an_unknown_dataset_is_told_from_a_near_one():
    with pytest.raises(TaskError, match="no dataset 'chain_sums'; did you mean \"chain_sum\""):
        load_task(TaskConfig(name="reasoning_gym:chain_sums"))
