"""``verigrad eval``: greedy and sampled accuracy of a model or a run, with intervals."""

import json
import re
from pathlib import Path

import pytest
from running import TOY, read_jsonl, snapshot, write_tiny_run

from verigrad.cli import main
from verigrad.engines import LocalEngine

INTERVAL = r"accuracy \d\.\d\d \(95 % interval \d\.\d\d to \d\.\d\d\) on 7 problems"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A trained table in ``table``, a tiny model in ``model`` and a run of it in ``run``."""
    folder = tmp_path_factory.mktemp("eval")
    config = write_tiny_run(folder)
    options = ["--run.steps", "500", "--run.folder", str(folder / "table")]
    assert main(["train", str(TOY), *options]) == 0
    assert main(["train", str(config), "--run.folder", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def evaluated(folder, monkeypatch, capsys):
    """The lines that evaluating a model or a run prints; nothing is written."""
    monkeypatch.chdir(folder)

    def evaluated(model: str, config: object, *options: object) -> list[str]:
        before = snapshot(folder)
        assert main(["eval", model, str(config), *map(str, options)]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        assert snapshot(folder) == before
        return captured.out.splitlines()

    return evaluated


def test_a_trained_table_is_right_on_every_problem(evaluated):
    assert evaluated("table", TOY, "--sampling.temperature", 0.01) == [
        "table on 9 training problems of toy",
        "greedy, 1 each: accuracy 1.00 (95 % interval 0.70 to 1.00) on 9 problems",
        "sampled at temperature 0.01, 8 each: accuracy 1.00 (95 % interval 0.70 to 1.00) on 9 "
        "problems; pass@2 1.00, pass@4 1.00, pass@8 1.00",
    ]


def test_an_untrained_table_guesses(evaluated):
    _, greedy, sampled = evaluated("tabular", TOY, "--sampling.completions", 400)
    assert greedy.endswith(" wrong")
    share = re.search(r"accuracy (\d\.\d\d)", sampled)
    assert share is not None
    assert 0.02 < float(share[1]) < 0.3


@pytest.mark.parametrize("model", ["model", "run"])
def test_a_language_model_is_measured_on_held_out_problems(model, evaluated):
    title, greedy, sampled = evaluated(model, "run.toml", "--evaluation.problems", 100)
    assert title == f"{model} on 7 held-out problems of letters"
    assert re.match(rf"greedy, 1 each: {INTERVAL}", greedy)
    assert re.match(rf"sampled at temperature 1, 3 each: {INTERVAL}", sampled)


def test_a_run_is_measured_as_it_measured_itself(folder, evaluated):
    last = read_jsonl(folder / "run" / "metrics.jsonl")[-1]
    _, greedy, _ = evaluated("run", "run.toml")
    assert f"accuracy {last['eval/accuracy']:.2f} (95 % interval {last['eval/low']:.2f} " in greedy
    assert " on 3 problems" in greedy


def test_the_trained_and_the_original_model_differ(evaluated):
    options = ("run.toml", "--evaluation.problems", 100, "--sampling.completions", 20)
    assert evaluated("run", *options)[2] != evaluated("model", *options)[2]


def test_the_same_question_has_the_same_answer(evaluated):
    assert evaluated("model", "run.toml") == evaluated("model", "run.toml")


def test_failed_verifications_are_left_out_and_said(folder, evaluated):
    (folder / "broken.py").write_text(
        "from verigrad import Problem, ProblemTask\n"
        "def check(completion, reference):\n"
        "    return 1 / (reference != 0)\n"
        "problems = [Problem(id=f'say-{n}', prompt=f'Say {n}.', reference=n % 2) for n in range(9)]"
        "\ntask = ProblemTask('broken', problems, check)\n"
    )
    (folder / "broken.toml").write_text(
        'task = {name = "broken.py:task", held_out = 0}\nmodel = "model"\n'
    )
    _, greedy, _ = evaluated("model", "broken.toml")
    assert greedy == (
        "greedy, 1 each: accuracy 1.00 (95 % interval 0.51 to 1.00) on 4 problems; 5 verifications "
        "failed and are left out"
    )


@pytest.fixture
def of_rows(tmp_path) -> Path:
    """A configuration whose task is a file of rows, with columns of names of their own."""
    rows = [{"question": f"{n} + 1", "result": n + 1} for n in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    config = tmp_path / "rows.toml"
    config.write_text(
        'task = "rows.jsonl"\nmodel = "smollm2-135m"\n'
        '[data]\nprompt = "question"\nanswer = "result"\nverifier = "number"\n'
        "[verifier]\nworkers = 0\n"
    )
    return config


def test_a_task_of_rows_is_measured_as_its_configuration_says(of_rows, evaluated):
    title, greedy, _ = evaluated("model", of_rows, "--sampling.max_new_tokens", 4)
    assert re.fullmatch(r"model on \d held-out problems of rows", title)
    assert greedy.startswith("greedy, 1 each: accuracy ")


def test_a_task_of_rows_is_verified_as_its_configuration_says(of_rows, capsys):
    main(["verify", str(of_rows)])
    assert "references  20 of 20 get full marks" in capsys.readouterr().out


def test_completions_are_verified_while_others_are_being_generated(evaluated, monkeypatch):
    handed_over = []

    class Watched(LocalEngine):
        def generate(self, prompts, completions, sampling, draws, finished):
            def taken(slot, number, completion):
                handed_over.append((slot, number))
                finished(slot, number, completion)

            return super().generate(prompts, completions, sampling, draws, taken)

    monkeypatch.setattr("verigrad.training.measuring.LocalEngine", Watched)
    evaluated("table", TOY, "--evaluation.problems", 2, "--sampling.completions", 3)
    one_each = [(0, 0), (1, 0)]
    assert sorted(handed_over) == sorted([*one_each, *((s, n) for s in (0, 1) for n in range(3))])
