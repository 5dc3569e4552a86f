"""Updates that are not finite: skipped, counted, kept for a replay; too many end the run."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from builders import batch_of, make_algorithm, make_group, make_table
from running import TOY, assert_same_run, read_jsonl, write_task, write_tiny_run
from safetensors.torch import load_file

import verigrad
from verigrad import Problem, ProblemTask
from verigrad.cli import main
from verigrad.errors import RunFolderError
from verigrad.training.bad_updates import BadUpdate, likely_cause
from verigrad.training.recorded import record_bad_update
from verigrad.training.replay import replay
from verigrad.training.state import TrainerState

HUGE = """
def check(completion, reference):
    return ({}) * (completion == str(reference))

problems = [Problem(id=str(n), prompt=str(n), reference=n) for n in range(9)]
task = ProblemTask("huge", problems, check)
"""
"""Rewards so large that the norm of a gradient overflows in float32, while each part does not."""

SOMETIMES = HUGE.format("1e30 if reference in (2, 5) else 1.0")
ALWAYS = HUGE.format("1e30")


def train_table(folder: Path, code: str, *options: object) -> tuple[int, Path]:
    """Train the table on a task whose advantages are not divided by their deviation."""
    file = write_task(folder, code)
    run = folder / "run"
    fixed = ["--task", f"{file}:task", "--algorithm", "dr_grpo", "--run.folder", run]
    return main(["train", str(TOY), *map(str, [*fixed, *options])]), run


def skipped_in(run: Path) -> dict[int, int]:
    return {line["step"]: line["updates/skipped"] for line in read_jsonl(run / "metrics.jsonl")}


def moments(checkpoint: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint / "optimizer.safetensors")


def test_a_run_goes_on_after_updates_that_are_not_finite(tmp_path):
    code, run = train_table(tmp_path, SOMETIMES, "--run.steps", 40)
    assert code == 0
    lines = read_jsonl(run / "metrics.jsonl")
    bad = [line for line in lines if line["updates/skipped"]]
    assert bad
    assert all(line["loss/total"] is None and line["tokens/trained"] == 0 for line in bad)
    assert lines[-1]["optimizer/updates"] > 10
    (found,) = [f for f in json.loads((run / "findings.json").read_text())
                if f["cause"] == "bad_numbers"]  # fmt: skip
    assert found["first_step"] == bad[0]["step"]


def test_a_skipped_update_changes_no_weight_and_nothing_of_the_optimiser(tmp_path):
    options = ["--run.steps", 20, "--checkpoint.every", 1, "--checkpoint.keep", 99]
    _, run = train_table(tmp_path, SOMETIMES, *options)
    # A step before it that learnt something, so that there are moments to change.
    bad = next(step for step, count in skipped_in(run).items() if count and step > 5)
    before, after = (run / "checkpoints" / f"step-{step:06d}" for step in (bad - 1, bad))
    for name in ("policy.safetensors", "optimizer.safetensors"):
        assert (before / name).read_bytes() == (after / name).read_bytes()
    assert moments(after)["0.step"] > 0


def test_too_many_in_a_row_end_the_run_with_the_likely_cause(tmp_path, capsys):
    code, run = train_table(tmp_path, ALWAYS, "--run.steps", 30)
    assert code == 4
    skipped = skipped_in(run)
    last = max(skipped)
    assert sum(skipped.values()) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"verigrad: error: step {last}: the loss is ")
    assert "and optimizer.max_bad_updates is 3. Likely cause: advantages reach " in line
    assert line.endswith(
        f"have the verifier return rewards of about 1. To see the batch: verigrad replay RUN {last}"
    )


def test_a_resume_counts_on_from_the_bad_updates_before_it(tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    for folder in (whole, resumed):
        folder.mkdir()
    assert train_table(whole, ALWAYS, "--run.steps", 30)[0] == 4
    second = [step for step, count in skipped_in(whole / "run").items() if count][1]
    code, run = train_table(resumed, ALWAYS, "--run.steps", second)
    assert code == 0
    assert main(["train", "--resume", str(run), "--run.steps", "30"]) == 4
    assert skipped_in(run) == skipped_in(whole / "run")


def test_a_resumed_run_with_skipped_updates_is_the_same_run(tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    for folder in (whole, resumed):
        folder.mkdir()
    code, wanted = train_table(whole, SOMETIMES, "--run.steps", 30)
    assert code == 0
    code, run = train_table(resumed, SOMETIMES, "--run.steps", 14)
    assert main(["train", "--resume", str(run), "--run.steps", "30"]) == code == 0
    assert_same_run(run, wanted)


# The replay


def test_a_replay_makes_the_bits_of_the_run_again(tmp_path, capsys):
    _, run = train_table(tmp_path, SOMETIMES, "--run.steps", 40)
    step = max(step for step, count in skipped_in(run).items() if count)
    (result,) = replay(run, step)
    assert result.is_same
    assert str(result.gradient_norm) == "inf"
    record = next(r for r in read_jsonl(run / "rollouts.jsonl") if r["step"] == step)
    assert f"problem '{record['problem']}', advantage " in result.completions[0]
    assert result.completions[0].endswith(f"1 tokens: '{record['text']}'")
    capsys.readouterr()
    assert main(["replay", str(run), str(step)]) == 0
    out = capsys.readouterr().out
    assert "(the same)" in out
    assert "likely cause                advantages reach" in out


def test_a_replay_of_a_language_model_uses_the_weights_that_the_run_had_then(tmp_path):
    problems = [Problem(id=f"say-{n}", prompt=f"Say {n}.", reference=n) for n in range(6)]

    def letters(completion: str, reference: int) -> float:
        return (1e30 if reference == 4 else 1.0) * sum(map(str.isalpha, completion)) / 6

    task = ProblemTask("letters", problems, letters)
    config = {
        "model": str(write_tiny_run(tmp_path).parent / "model"),
        "algorithm": "dr_grpo",
        "task": {"name": "python:letters", "held_out": 0},
        "run": {"steps": 4, "threads": 1, "folder": str(tmp_path / "run")},
        "sampling": {"problems": 2, "completions": 4, "max_new_tokens": 6},
        "optimizer": {"learning_rate": 1e-2},
        "verifier": {"check": "off"},
    }
    run = verigrad.train(config, task=task, quiet=True).folder
    step = max(step for step, count in skipped_in(run).items() if count)
    (result,) = replay(run, step, task=task)
    assert result.recorded.policy_version > 0
    assert result.is_same


def test_of_many_bad_updates_the_latest_can_be_replayed(tmp_path):
    _, run = train_table(tmp_path, SOMETIMES, "--run.steps", 60)
    bad = [step for step, count in skipped_in(run).items() if count]
    kept = sorted(path.name for path in (run / "bad-updates").iterdir())
    assert len(bad) > 3 == len(kept)
    first = f"of step {bad[0]}; only updates that were skipped because they were not finite are"
    with pytest.raises(RunFolderError, match=first):
        replay(run, bad[0])


def test_a_damaged_record_is_named(tmp_path, capsys):
    _, run = train_table(tmp_path, ALWAYS, "--run.steps", 30)
    (file, *_) = sorted((run / "bad-updates").rglob("step-*.safetensors"))
    os.truncate(file, 20)
    step = int(file.name.split("-")[1])
    capsys.readouterr()
    assert main(["replay", str(run), str(step)]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"verigrad: error: the recorded update {file.with_suffix('.json')} can")
    assert line.count("\n") == 1


@pytest.mark.parametrize("name", ["policy.safetensors", "batch"])
def test_a_number_that_changed_in_a_record_is_noticed(name, tmp_path):
    _, run = train_table(tmp_path, ALWAYS, "--run.steps", 30)
    (record, *_) = sorted((run / "bad-updates").rglob("step-*.json"))
    file = record.with_suffix(".safetensors") if name == "batch" else record.with_name(name)
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunFolderError, match="batch and weights are not those that were written"):
        replay(run, int(record.name.split("-")[1]))


def test_a_file_that_is_no_record_is_in_nobodys_way(tmp_path):
    _, run = train_table(tmp_path, ALWAYS, "--run.steps", 30)
    (record, *_) = sorted((run / "bad-updates").rglob("step-*.json"))
    shutil.copy(record, record.with_name(f"{record.stem}-old-one.json"))
    (result,) = replay(run, int(record.name.split("-")[1]))
    assert result.is_same


def test_old_records_that_are_elsewhere_are_let_go_of(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "run" / "bad-updates").mkdir(parents=True)
    (tmp_path / "run" / "bad-updates" / "policy-00000000").symlink_to(elsewhere)
    state = TrainerState(
        policy=make_table(), optimizer=torch.optim.SGD([torch.zeros(1)]), token_budget=1
    )
    bad = BadUpdate(loss=1.0, gradient_norm=float("inf"), cause="")
    batch = batch_of([GROUP], make_algorithm())
    for state.policy_version in (1, 2, 3):
        record_bad_update(tmp_path / "run" / "bad-updates", state, batch, bad, 1)
    names = sorted(path.name for path in (tmp_path / "run" / "bad-updates").iterdir())
    assert names == ["policy-00000001", "policy-00000002", "policy-00000003"]
    assert elsewhere.is_dir()


@pytest.mark.parametrize("step", ["x", "-1", "1.5"])
def test_what_is_no_step_is_refused(step, tmp_path, capsys):
    assert main(["replay", str(tmp_path), "--", step]) == 2
    assert "must be the number of a step" in capsys.readouterr().err


def test_a_folder_without_a_run_has_nothing_to_replay(tmp_path, capsys):
    assert main(["replay", str(tmp_path), "3"]) == 2
    assert f"{tmp_path} holds no run" in capsys.readouterr().err


# The likely cause

GROUP = make_group(0, [((1, 0), 1.0), ((2, 0), 0.0)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_the_cause(bad):
    policy = make_table()
    batch = batch_of([GROUP], make_algorithm())
    with torch.no_grad():
        policy.table[1, 0, 0] = bad
    assert likely_cause(policy, batch, torch.tensor(1.0)).startswith(
        "the weights are not finite already, first in table: "
    )


def test_a_loss_that_overflows_from_ordinary_numbers_has_a_policy_that_moved_too_far():
    batch = batch_of([GROUP], make_algorithm())
    assert likely_cause(make_table(), batch, torch.tensor(float("inf"))).startswith(
        "the policy has moved so far from the one that sampled that the loss overflows; "
    )


def test_records_of_steps_that_a_resume_makes_again_are_not_left(tmp_path):
    _, run = train_table(tmp_path, ALWAYS, "--run.steps", 30)
    (folder,) = (run / "bad-updates").iterdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "policy.safetensors").write_bytes(b"of another run")
    (folder / "step-000099-update-1.json").write_text("{}")
    for path in (run / "checkpoints").iterdir():
        shutil.rmtree(path)
    assert main(["train", "--resume", str(run)]) == 4
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
