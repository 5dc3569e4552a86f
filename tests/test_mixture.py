"""Mixtures: exact shares, a verifier for each part, and a run of one from its file."""

from collections import Counter

import pytest
from running import assert_same_run, read_jsonl, write_task, write_tiny_run

from verigrad.cli import main
from verigrad.config import TaskConfig, config_from, load_config, to_toml
from verigrad.errors import ConfigError, TaskError
from verigrad.tasks import (
    TASKS,
    Mixture,
    Part,
    ProblemTask,
    by_part,
    first_problems,
    load_task,
    problem_at,
    split,
)
from verigrad.types import Problem
from verigrad.verifiers import verify


def of_one(name: str, size: int, verifier=lambda text, reference: text == reference) -> ProblemTask:
    problems = [Problem(id=str(n), prompt=f"{name} {n}", reference=str(n)) for n in range(size)]
    return ProblemTask(name, problems, verifier)


MIXED = Mixture((Part(2, of_one("easy", 6)), Part(1, of_one("hard", 4))))


def test_every_cycle_draws_each_part_as_often_as_its_weight():
    training = split(MIXED, 0.0).training
    names = [problem_at(training, 0, position).metadata["task"] for position in range(30)]
    for start in range(0, 30, 3):
        assert sorted(names[start : start + 3]) == ["easy", "easy", "hard"]
    assert len({tuple(names[start : start + 3]) for start in range(0, 30, 3)}) == 3


def test_each_problem_of_a_part_is_drawn_equally_often():
    training = split(MIXED, 0.0).training
    # Twelve cycles: four epochs of the six easy problems, three of the four hard ones.
    counts = Counter(problem_at(training, 0, position).id for position in range(36))
    assert {id_: count for id_, count in counts.items() if id_.startswith("easy")} == {
        f"easy/{n}": 4 for n in range(6)
    }
    assert {id_: count for id_, count in counts.items() if id_.startswith("hard")} == {
        f"hard/{n}": 3 for n in range(4)
    }


def test_a_draw_depends_on_seed_and_position_alone():
    training = split(MIXED, 0.0).training
    forwards = [problem_at(training, 3, position).id for position in range(30)]
    assert (
        forwards == [problem_at(training, 3, position).id for position in reversed(range(30))][::-1]
    )
    assert forwards != [problem_at(training, 4, position).id for position in range(30)]


def test_a_problem_is_on_the_side_of_the_split_that_it_is_on_by_itself():
    alone = {problem.content_key for problem in split(TASKS["addition"](), 0.2).held_out}
    mixed = split(Mixture((Part(1, TASKS["addition"]()), Part(1, TASKS["sorting"]()))), 0.2, 40)
    sums = [each for each in mixed.held_out if each.metadata["task"] == "addition"]
    assert len(sums) == 20
    assert {each.content_key for each in sums} <= alone
    for position in range(100):
        assert problem_at(mixed.training, 0, position).content_key not in alone


def test_each_part_is_checked_by_its_own_verifier():
    half = of_one("half", 3, lambda text, reference: 0.5)
    task = Mixture((Part(1, of_one("exact", 3)), Part(1, half)))
    problems = [problem_at(split(task, 0.0).training, 0, position) for position in range(6)]
    for problem in problems:
        reward = verify(task.verifier, "nothing", problem.reference).reward
        assert reward == {"exact": 0.0, "half": 0.5}[problem.metadata["task"]]


def test_two_parts_of_one_name_are_refused():
    with pytest.raises(TaskError, match="a mixture has two parts called 'easy'"):
        Mixture((Part(1, of_one("easy", 2)), Part(2, of_one("easy", 3))))


def test_a_mixture_is_written_in_a_configuration_and_comes_back(tmp_path):
    keys = {"task": {"name": "mixture", "mixture": ["2 addition", "1 countdown@3"]}, "model": "a/b"}
    config = config_from(keys, source="keys", base=tmp_path)
    (tmp_path / "run.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "run.toml") == config
    said = [("task", "mixture"), ("task.mixture", "2 addition, 1 countdown@3")]
    (tmp_path / "other.toml").write_text('task = "toy"\nmodel = "a/b"')
    assert load_config(tmp_path / "other.toml", said) == config
    task = load_task(config.task)
    assert [(part.weight, part.task.name) for part in task.parts] == [
        (2, "addition"),
        (1, "countdown"),
    ]
    assert len(task.parts[1].task.problem(0, 0).reference["numbers"]) == 4


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"name": "mixture"}, "task.mixture lists no task; write the parts with their weights"),
        ({"name": "toy", "mixture": ["1 toy"]}, "task.mixture lists tasks, but task.name is 'toy'"),
        ({"name": "mixture", "mixture": ["addition"]}, r'has the part "addition"; each is a whole'),
        ({"name": "mixture", "mixture": ["0.5 toy"]}, r'has the part "0.5 toy"; each is a whole'),
        ({"name": "mixture", "mixture": ["1 mixture"]}, "cannot be part of a mixture"),
        ({"name": "mixture", "mixture": ["1 sort"]}, 'has a part that is "sort"; did you mean "so'),
        (
            {"name": "mixture", "mixture": ["1 toy"], "difficulty": 2},
            "task.difficulty is set, but each part of a mixture has its own",
        ),
    ],
)
def test_a_mixture_that_makes_no_sense_is_refused_with_the_way_out(task, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        config_from({"task": task, "model": "a/b"}, source="keys", base=tmp_path)


def test_a_difficulty_of_a_part_is_checked():
    with pytest.raises(TaskError, match="9, but that of countdown goes from 1 to 5"):
        load_task(TaskConfig(name="mixture", mixture=("1 countdown@9",)))


def test_a_table_is_refused_for_problems_that_are_made_when_they_are_drawn(tmp_path, capsys):
    (tmp_path / "run.toml").write_text('task = "sorting"\nmodel = "tabular"')
    assert main(["train", str(tmp_path / "run.toml")]) == 2
    assert "sorting makes its problems when they are drawn" in capsys.readouterr().err


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A run of a user's task and a built-in one together, in the working directory."""
    config = write_tiny_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = config.read_text().replace(
        'task = "letters.py:letters"',
        '[task]\nname = "mixture"\nmixture = ["1 letters.py:letters", "1 arithmetic"]\n',
    )
    model, _, rest = text.partition('model = "model"\n')
    config.write_text(f'model = "model"\n{model}{rest}')
    return config


def test_a_run_of_a_mixture_logs_each_of_its_tasks(config, tmp_path):
    assert main(["train", str(config), "--run.steps", "2", "--run.folder", "run"]) == 0
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    for line in lines[1:]:
        assert line["reward/task/letters/mean"] > 0
        assert line["reward/task/arithmetic/mean"] is not None
    assert [line["eval/task/arithmetic/accuracy"] for line in lines] == [0.0, None, 0.0]
    rollouts = read_jsonl(tmp_path / "run" / "rollouts.jsonl")
    assert {each["reference"]["task"] for each in rollouts} == {"letters", "arithmetic"}


def test_a_run_is_refused_for_a_part_that_it_may_never_draw(config, tmp_path, capsys):
    write_task(
        tmp_path,
        "ones = [Problem(id=str(n), prompt=f'one {n}', reference='1') for n in range(20)]\n"
        "task = ProblemTask('rare', ones, lambda text, reference: 0.0)",
    )
    parts = "99 letters.py:letters, 99 arithmetic, 1 task.py:task"
    options = ["--task.mixture", parts, "--run.steps", "1", "--run.folder", "run"]
    assert main(["train", str(config), *options]) == 2
    assert "task 'rare': the verifier gives 0 to the reference" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_part_is_looked_at_in_its_own_order_with_references_of_the_mixture():
    mixed = Mixture((Part(1, of_one("often", 6)), Part(1, TASKS["sorting"]())))
    _, (part, sides) = by_part(mixed, split(mixed, 0.2, 4))
    alone = first_problems(split(TASKS["sorting"](), 0.2).training, 3)
    references = [each.reference for each in first_problems(sides.training, 3)]
    assert part.name == "sorting"
    assert references == [{"task": "sorting", "reference": each.reference} for each in alone]


def test_a_resumed_run_of_a_mixture_is_the_same_run(config, tmp_path):
    options = ["--optimizer.learning_rate", "1e-3", "--evaluation.every", "2"]
    assert main(["train", str(config), "--run.steps", "4", "--run.folder", "whole", *options]) == 0
    assert main(["train", str(config), "--run.steps", "2", "--run.folder", "run", *options]) == 0
    assert main(["train", "--resume", "run", "--run.steps", "4"]) == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole")
