"""A whole run: what the command writes, what it shows, and that it is the same run each time."""

import json
import math
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from running import (
    ON_PATH,
    TOY,
    assert_same_run,
    read_jsonl,
    snapshot,
    traces,
    without_clock,
    write_tiny_run,
)
from safetensors.torch import load_file

import verigrad
from verigrad.cli import main
from verigrad.config import load_config


def train(*arguments: object) -> int:
    return main(["train", *map(str, arguments)])


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> SimpleNamespace:
    """The example of the table, run as people run it, its output piped."""
    folder = tmp_path_factory.mktemp("toy")
    command = [sys.executable, "-m", "verigrad", "train", str(TOY)]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | ON_PATH, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return SimpleNamespace(
        run=folder / "runs" / "toy-1", out=done.stdout.decode(), err=done.stderr.decode()
    )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> SimpleNamespace:
    """A run of a tiny language model."""
    config = write_tiny_run(tmp_path_factory.mktemp("tiny"))
    run = config.parent / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "60")
        patch.chdir(config.parent)
        lines = SimpleNamespace(out=config.parent / "out", err=config.parent / "err")
        with lines.out.open("w") as out, lines.err.open("w") as err:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            assert train(config, "--run.folder", "run") == 0
    return SimpleNamespace(
        config=config, run=run, out=lines.out.read_text(), err=lines.err.read_bytes().decode()
    )


# What is learned


def test_the_table_learns_all_nine_sums(toy):
    last = [line["reward/mean"] for line in read_jsonl(toy.run / "metrics.jsonl")[-200:]]
    assert sum(last) / 200 > 0.995
    assert toy.out.startswith("mean reward of the last 200 steps: 1.000\n1500 steps in ")


def test_the_learned_table_answers_right(toy):
    table = load_file(toy.run / "final" / "policy.safetensors")["table"]
    answers = table[:, 0].argmax(dim=-1).tolist()
    assert answers == [2, 3, 4, 3, 4, 5, 4, 5, 6]
    description = json.loads((toy.run / "final" / "policy.json").read_text())
    assert description["problem_ids"][5] == "toy/2+3"


# The run folder


def test_the_run_folder_holds_what_it_promises_and_nothing_else(toy):
    assert {path.name for path in toy.run.iterdir()} == {
        "config.toml", "environment.json", "metrics.jsonl", "rollouts.jsonl", "findings.json",
        "checkpoints", "final", "run.lock",
    }  # fmt: skip


def test_the_resolved_configuration_reloads_to_the_same_value(toy, tiny):
    assert load_config(toy.run / "config.toml") == load_config(TOY)
    folder = [("run.folder", str(tiny.run))]
    assert load_config(tiny.run / "config.toml") == load_config(tiny.config, folder)


def test_the_environment_says_what_ran_and_what_was_decided(toy):
    environment = json.loads((toy.run / "environment.json").read_text())
    assert environment["versions"]["torch"] == torch.__version__
    assert environment["versions"]["python"] == sys.version.split()[0]
    assert set(environment["versions"]) == {
        "verigrad", "torch", "transformers", "tokenizers", "safetensors", "python",
    }  # fmt: skip
    assert environment["decisions"] == {
        "threads": 1, "token_budget": 2048, "shares_prompts": True, "device": "cpu",
        "precision": "float32",
    }  # fmt: skip
    assert environment["reasons"].keys() == {*environment["decisions"], "verifier"}
    assert environment["reasons"]["verifier"] == (
        "last_number runs in the trainer's process: it is bounded"
    )
    assert environment["cores"] >= 1
    commit = environment["commit"]
    assert commit is None or re.fullmatch("[0-9a-f]{40}", commit)


def test_there_is_one_line_of_metrics_per_step(toy, tiny):
    assert [line["step"] for line in read_jsonl(toy.run / "metrics.jsonl")] == [*range(1, 1501)]
    # The evaluation before training is step 0.
    assert [line["step"] for line in read_jsonl(tiny.run / "metrics.jsonl")] == [*range(9)]


def test_every_line_of_metrics_has_the_same_keys(toy, tiny):
    lines = read_jsonl(toy.run / "metrics.jsonl") + read_jsonl(tiny.run / "metrics.jsonl")
    assert {tuple(line) for line in lines} == {tuple(lines[0])}


def test_a_metric_without_data_is_null(toy, tiny):
    idle = next(
        line for line in read_jsonl(toy.run / "metrics.jsonl") if not line["groups/with_signal"]
    )
    for key in ("loss/total", "policy/entropy", "policy/mismatch", "optimizer/gradient_norm",
                "eval/accuracy", "eval/problems", "time/evaluate"):  # fmt: skip
        assert idle[key] is None
    assert idle["tokens/trained"] == 0
    first = read_jsonl(tiny.run / "metrics.jsonl")[0]
    for key in ("reward/mean", "reward/deviation", "completions/mean_length", "time/generate",
                "time/tokens_per_second"):  # fmt: skip
        assert first[key] is None
    assert first["eval/problems"] == 3


def test_a_step_in_which_nothing_trains_makes_no_update(toy):
    updates = 0
    for line in read_jsonl(toy.run / "metrics.jsonl"):
        updates += line["groups/with_signal"] > 0
        assert line["optimizer/updates"] == updates
        assert (line["optimizer/passes"] > 0) == (line["groups/with_signal"] > 0)


def test_there_is_one_line_per_completion_and_it_explains_the_reward(toy):
    records = read_jsonl(toy.run / "rollouts.jsonl")
    assert [(r["step"], r["completion"]) for r in records] == [
        (step, completion) for step in range(1, 1501) for completion in range(8)
    ]
    assert set(records[0]) == {
        "step", "purpose", "slot", "completion", "problem", "prompt", "reference", "text",
        "status", "reward", "components", "detail", "finish", "policy_version", "token_ids",
        "log_probs",
    }  # fmt: skip
    for record in records[::97]:
        assert record["reward"] == (record["text"] == str(record["reference"]))
        assert record["token_ids"] == [int(record["text"])]
        assert record["finish"] == "stopped"


def test_metrics_and_rollouts_tell_the_same_story(tiny):
    records = read_jsonl(tiny.run / "rollouts.jsonl")
    updates = 0
    for line in read_jsonl(tiny.run / "metrics.jsonl")[1:]:
        mine = [r for r in records if r["step"] == line["step"] and r["purpose"] == "train"]
        assert len(mine) == line["completions/total"] == 6
        assert math.isclose(sum(r["reward"] for r in mine) / 6, line["reward/mean"])
        assert sum(len(r["token_ids"]) for r in mine) == line["tokens/generated"]
        assert sum(r["finish"] == "truncated" for r in mine) == line["completions/truncated"]
        # Sampled before the step's own update.
        assert {r["policy_version"] for r in mine} == {updates}
        updates = line["optimizer/updates"]
    assert updates > 0


def test_evaluations_are_recorded_when_they_are_due(tiny):
    lines = read_jsonl(tiny.run / "metrics.jsonl")
    assert [line["step"] for line in lines if line["eval/accuracy"] is not None] == [0, 2, 4, 6, 8]
    records = [r for r in read_jsonl(tiny.run / "rollouts.jsonl") if r["purpose"] == "evaluate"]
    assert [r["step"] for r in records] == [step for step in (0, 2, 4, 6, 8) for _ in range(3)]


def test_the_newest_checkpoints_are_kept(toy, tiny):
    for run, names in (
        (toy.run, ["step-001000", "step-001500"]),
        (tiny.run, ["step-000006", "step-000008"]),
    ):
        assert sorted(path.name for path in (run / "checkpoints").iterdir()) == names


def test_findings_say_what_is_wrong_in_words(toy):
    (finding,) = json.loads((toy.run / "findings.json").read_text())
    assert finding == {
        "first_step": finding["first_step"],
        "cause": "no_signal",
        "step": 1500,
        "number": 0.0,
        "message": "0% of the groups of the last 10 steps have a signal; completions of a problem "
        "that all get the same reward teach nothing, and 100% of them are all right: the task is "
        "solved, or make it harder",
    }
    assert 10 <= finding["first_step"] < 200


def test_the_final_folder_is_a_model_that_the_library_of_models_loads(tiny):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny.run / "final")
    tokenizer = AutoTokenizer.from_pretrained(tiny.run / "final")
    saved = load_file(tiny.run / "checkpoints" / "step-000008" / "policy.safetensors")
    assert tokenizer.encode("say 12.") == [34, 16, 40, 42, 5, 44]
    state = model.state_dict()
    assert saved.keys() <= state.keys()
    assert all(torch.equal(state[name], saved[name]) for name in saved)
    assert not torch.equal(
        state["lm_head.weight"],
        load_file(tiny.config.parent / "model" / "model.safetensors")["lm_head.weight"],
    )


# What is shown


def test_piped_output_is_plain_lines(toy, tiny):
    for text in (toy.out, toy.err, tiny.out, tiny.err):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)


def test_progress_goes_to_stderr_in_lines_that_a_person_understands(toy, tiny):
    line = (
        r"step +\d+/(1500|8)  reward +\d\.\d\d  (held-out accuracy \d\.\d\d  )?"
        r"groups with signal \d/\d  [\d,]+ tokens/s  (\d+ min )?\d+ s left"
    )
    for err, last in ((toy.err, "step 1500/1500  "), (tiny.err, "step 8/8  ")):
        steps = [text for text in err.splitlines() if re.match(r"step +\d+/", text)]
        assert len(steps) >= 2
        assert all(re.fullmatch(line, text) for text in steps)
        assert steps[-1].startswith(last)
    assert "held-out accuracy before training: 0.00" in tiny.err.splitlines()


def test_a_finding_is_printed_once(toy):
    assert toy.err.count("no signal: ") == 1


def test_the_end_shows_before_and_after(tiny):
    lines = tiny.out.splitlines()
    assert lines[0].startswith("mean reward of the last 8 steps: 0.")
    assert re.match(r"held-out before: accuracy 0\.00 \(95 % interval 0\.00 to 0\.56\)", lines[1])
    assert re.match(r"held-out after:  accuracy \d\.\d\d \(95 % interval", lines[2])
    assert lines[-1].startswith("8 steps in ")
    assert lines[-1].endswith(f"; the trained policy is {tiny.run}/final")


def test_three_completions_stand_side_by_side(tiny):
    records = [r for r in read_jsonl(tiny.run / "rollouts.jsonl") if r["purpose"] == "evaluate"]
    texts = {step: [r["text"] for r in records if r["step"] == step] for step in (0, 8)}
    rows = [line for line in tiny.out.splitlines() if "│ Say " in line]
    assert len(rows) == 3
    for row, before, after in zip(rows, texts[0], texts[8], strict=True):
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        assert cells[1:] == [before.strip(), after.strip()]


# The same run


@pytest.mark.parametrize("kind", ["table", "language model"])
def test_the_same_seed_is_the_same_run_and_another_is_not(kind, tiny, tmp_path):
    options = [tiny.config] if kind == "language model" else [TOY, "--run.steps", 60]
    runs = [tmp_path / name for name in ("first", "second", "other")]
    for run, seed in zip(runs, (5, 5, 6), strict=True):
        assert train(*options, "--run.seed", seed, "--run.folder", run) == 0
    assert_same_run(runs[0], runs[1])
    first, other = traces(runs[0]), traces(runs[2])
    for part in ("metrics", "rollouts", "policy", "optimizer"):
        assert first[part] != other[part]


def test_a_run_from_python_is_the_run_of_the_command(toy, tmp_path):
    config = load_config(TOY, [("run.folder", str(tmp_path / "run")), ("run.steps", "40")])
    result = verigrad.train(config, quiet=True)
    assert (result.steps, result.exit_code, result.folder) == (40, 0, tmp_path / "run")
    assert (result.before, result.after) == (None, None)
    lines = [read_jsonl(run / "metrics.jsonl")[:40] for run in (result.folder, toy.run)]
    assert [*map(without_clock, lines[0])] == [*map(without_clock, lines[1])]


def test_the_result_holds_the_evaluations_before_and_after(tiny, tmp_path):
    config = load_config(tiny.config, [("run.folder", str(tmp_path / "run"))])
    result = verigrad.train(config, quiet=True)
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert result.before is not None
    assert result.after is not None
    assert result.before.truncated == lines[0]["eval/truncated"]
    assert result.after.truncated == lines[8]["eval/truncated"]
    assert (result.before.problems, result.after.problems) == (3, 3)


# Where it is written


def test_the_default_folder_is_the_next_free_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(3):
        assert train(TOY, "--run.steps", 2) == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "toy-1", "toy-2", "toy-3",
    ]  # fmt: skip
    lines = [read_jsonl(tmp_path / "runs" / f"toy-{n}" / "metrics.jsonl") for n in (1, 3)]
    assert [*map(without_clock, lines[0])] == [*map(without_clock, lines[1])]


def test_an_explicit_folder_is_made_with_its_parents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train(TOY, "--run.steps", 2, "--run.folder", "a/b") == 0
    assert len(read_jsonl(tmp_path / "a" / "b" / "metrics.jsonl")) == 2


def test_a_folder_that_holds_a_run_is_refused_and_stays_as_it_is(toy, capsys):
    before = snapshot(toy.run)
    assert train(TOY, "--run.folder", toy.run) == 2
    assert capsys.readouterr().err == (
        f"verigrad: error: run.folder {toy.run} holds a run already; choose another folder, leave "
        "run.folder out for the next free one, or continue that run: verigrad train --resume "
        f"{toy.run}\n"
    )
    assert snapshot(toy.run) == before
