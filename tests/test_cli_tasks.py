"""``verigrad tasks`` and ``verigrad init``, as a person uses them."""

from pathlib import Path

import pytest
from running import read_jsonl, write_task, write_tiny_run

from verigrad.cli import main
from verigrad.config.schema import TASKS


@pytest.fixture
def model(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(write_tiny_run(tmp_path / "tiny").parent / "model")


def test_the_list_names_every_built_in_task_with_its_difficulties(capsys):
    assert main(["tasks"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows[1 : len(TASKS) + 1]] == list(TASKS)
    assert rows[1][1:4] == ["1", "to", "20"]


def test_a_problem_is_shown_as_the_model_will_see_it(model, capsys):
    assert main(["tasks", "show", "addition", "--n", "1", "--model", model]) == 0
    shown = capsys.readouterr().out
    assert "326 problems to train on, 74 held out" in shown
    assert "<s><turn>user\n" in shown
    assert shown.count("</s><turn>assistant\n") == 1
    assert "-- the verifier says: scored, reward 1: the last number is 12; expected 12" in shown


def test_a_configuration_names_the_task_and_the_model(model, tmp_path, capsys):
    assert main(["tasks", "show", str(tmp_path / "tiny" / "run.toml"), "--n", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("letters: ")
    assert shown.count("== say-") == 2


def test_what_a_task_would_write_to_the_terminal_is_shown_rather_than_obeyed(model, capsys):
    code = (
        "problems = [Problem(id='a\\x1b[2J', prompt='b', reference='\\x1b]0;x\\x07')]\n"
        "task = ProblemTask('t', problems, lambda text, reference: 1.0)"
    )
    file = write_task(Path.cwd(), code)
    task = f'[task]\nname = "{file}:task"\nheld_out = 0.0\n'
    Path("run.toml").write_text(f'{task}[model]\nname = "{model}"\n')
    assert main(["tasks", "show", "run.toml", "--n", "1"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "== a\\x1b[2J" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "sortin"], 'task.name is "sortin"; did you mean "sorting"?'),
        (["show", "sorting", "--difficulty", "99"], "that of sorting goes from 1 to 10"),
        (["show", "sorting", "--n", "0"], "--n is 0; it must be 1 or more"),
        (["show", "toy", "--model", "tabular"], "name a language model"),
        (["sorting"], "verigrad tasks show sorting"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(arguments, message, capsys):
    assert main(["tasks", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


def test_what_init_writes_trains_as_it_is(model, tmp_path, capsys):
    assert main(["init", "mine"]) == 0
    assert "verigrad train mine/run.toml" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [
        "problems.jsonl",
        "run.toml",
        "task.py",
    ]
    assert len(read_jsonl(tmp_path / "mine" / "problems.jsonl")) == 10
    assert main(["verify", "mine/run.toml"]) == 0
    options = ["--model", model, "--run.steps", "2", "--run.threads", "1", "--run.folder", "run"]
    assert main(["train", "mine/run.toml", *options]) == 0
    last = read_jsonl(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["step"] == 2
    assert last["reward/part/right/mean"] is not None
    assert last["eval/problems"] == 2


def test_parts_of_a_reward_are_normalised_one_by_one_from_the_file_that_init_writes(
    model, tmp_path
):
    assert main(["init", "mine"]) == 0
    options = ["--model", model, "--run.steps", "2", "--run.threads", "1", "--run.folder", "run"]
    assert main(["train", "mine/run.toml", "--algorithm", "gdpo", *options]) == 0
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert "reward/part/bare/deviation" in lines[-1]


def test_init_replaces_nothing(tmp_path, capsys):
    (tmp_path / "task.py").write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert "task.py exists already, and nothing is replaced" in capsys.readouterr().err
    assert (tmp_path / "task.py").read_text() == "mine"
    assert not (tmp_path / "run.toml").exists()
