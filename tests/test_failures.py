"""Verifiers that fail are counted and left out; too many, or bad numbers, end the run."""

import json
import shutil
from pathlib import Path

import pytest
from running import TOY, assert_same_run, read_jsonl, write_task, write_tiny_run
from safetensors.torch import load_file, save_file

from verigrad.cli import main
from verigrad.training.checkpoint import checkpoints

NINE = "[Problem(id=str(n), prompt=str(n), reference=n) for n in range(9)]"


def train(*arguments: object) -> int:
    return main(["train", *map(str, arguments)])


def train_table(folder: Path, verifier: str, *options: object) -> tuple[int, Path]:
    """Train a table on a task with a verifier, written as a function's body; exit code and run."""
    code = f"def check(completion, reference):\n    {verifier}\n"
    file = write_task(folder, f"{code}\ntask = ProblemTask('task', {NINE}, check)")
    run = folder / "run"
    arguments = ["--task", f"{file}:task", "--run.steps", 30, "--run.folder", run, *options]
    # In this process, and with references that nobody has to like.
    arguments += ["--verifier.workers", 0, "--verifier.check", "off"]
    return train(TOY, *arguments), run


def newest_step(run: Path) -> int:
    return int(checkpoints(run / "checkpoints")[-1].name.removeprefix("step-"))


# Verifiers that fail

MOODY = "return 1 / (completion != '7') if completion in '789' else float(completion == '1')"
"""Raises on 7, likes 8 and 9 and 1."""


def test_a_failed_verification_is_counted_and_left_out(tmp_path):
    code, run = train_table(tmp_path, MOODY, "--verifier.max-failures", 1)
    assert code == 0
    records = read_jsonl(run / "rollouts.jsonl")
    failed = [r for r in records if r["text"] == "7"]
    assert failed
    for record in failed:
        assert (record["status"], record["reward"]) == ("failed", None)
        assert record["detail"] == (
            f"exception: ZeroDivisionError: float division by zero ({tmp_path}/task.py:3)"
        ) or record["detail"].startswith("exception: ZeroDivisionError: division by zero (")
    for line in read_jsonl(run / "metrics.jsonl"):
        mine = [r for r in records if r["step"] == line["step"]]
        rewards = [float(r["text"] in "189") for r in mine if r["text"] != "7"]
        assert line["verdicts/failed"] == len(mine) - len(rewards)
        assert line["verdicts/scored"] == len(rewards)
        assert line["reward/mean"] == pytest.approx(sum(rewards) / len(rewards))


def test_failures_are_a_finding(tmp_path, capsys):
    _, run = train_table(tmp_path, MOODY, "--verifier.max-failures", 1)
    found = {f["cause"]: f for f in json.loads((run / "findings.json").read_text())}
    first = next(x["step"] for x in read_jsonl(run / "metrics.jsonl") if x["verdicts/failed"])
    assert found["failures"]["first_step"] == first
    err = capsys.readouterr().err
    assert err.count("failures: ") == 1
    assert f"step {first}: failures: " in err


def test_the_step_is_the_one_in_which_a_failed_completion_was_never_drawn(tmp_path):
    # All but two of each group fail, and those two agree: nothing may be learned from the others.
    verifier = "return 1.0 if completion in '12' else 1 / 0"
    code, run = train_table(tmp_path, verifier, "--verifier.max-failures", 1)
    assert code == 0
    assert read_jsonl(run / "metrics.jsonl")[-1]["optimizer/updates"] == 0


@pytest.mark.parametrize(
    ("verifier", "reason"),
    [
        ("return completion", "bad value: the verifier returned str "),
        ("return None", "bad value: the verifier returned NoneType None"),
        ("return float('nan')", "bad value: the verifier returned nan; a reward is finite"),
        ("raise SystemExit(1)", "exception: SystemExit: 1 ("),
        ("import nowhere", "exception: ModuleNotFoundError: No module named 'nowhere' ("),
        ("raise ValueError('two\\nlines')", "exception: ValueError: two"),
    ],
)
def test_too_many_failures_end_the_run_with_reasons_and_an_example(
    verifier, reason, tmp_path, capsys
):
    code, run = train_table(tmp_path, verifier)
    assert code == 3
    err = capsys.readouterr().err
    *_, line = err.splitlines()
    assert line.startswith(
        "verigrad: error: step 1: 8 of 8 verifications failed, and verifier.max_failures is 0.1; "
        "the update was not made. Reasons: "
    )
    assert reason in line
    assert "(for one, problem '" in line
    assert "Traceback" not in err
    assert read_jsonl(run / "metrics.jsonl") == []


ON_ONE = "return float(completion == '3') if completion != '1' else 1 / 0"
"""Raises on 1, which is first drawn in step 4."""


def test_the_state_before_too_many_failures_is_saved(tmp_path):
    code, run = train_table(tmp_path, ON_ONE, "--verifier.max-failures", 0)
    assert code == 3
    assert [line["step"] for line in read_jsonl(run / "metrics.jsonl")] == [1, 2, 3]
    assert newest_step(run) == 3
    assert not (run / "final").exists()


def test_a_mended_verifier_goes_on_where_the_run_stopped(tmp_path):
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    for folder in (broken, whole):
        folder.mkdir()
    mended = ON_ONE.partition(" if ")[0]
    _, wanted = train_table(whole, mended, "--verifier.max-failures", 0)
    code, run = train_table(broken, ON_ONE, "--verifier.max-failures", 0)
    assert code == 3
    task = broken / "task.py"
    task.write_text(task.read_text().replace(ON_ONE, mended))
    assert train("--resume", run) == 2
    assert train("--resume", run, "--accept-changed-files") == 0
    assert_same_run(run, wanted)


# Numbers that are not finite


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_tiny_run(tmp_path_factory.mktemp("tiny")).parent


def with_weights(model: Path, folder: Path, value: float) -> Path:
    """A copy of the run whose vocabulary head has all its weights replaced."""
    shutil.copytree(model, folder)
    file = folder / "model" / "model.safetensors"
    weights = load_file(file)
    weights["lm_head.weight"].fill_(value)
    save_file(weights, file, metadata={"format": "pt"})
    return folder / "run.toml"


def assert_bad_numbers(code: int, err: str) -> None:
    assert code == 4
    assert err.splitlines()[-1].startswith("verigrad: error: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("verifier", "line"),
    [
        (
            "return 1e308 * (-1) ** int(completion)",
            "the advantage by 'grpo' of completion '",
        ),
        ("return 1e308", "the rewards of a step lie between 1e+308 and 1e+308, too large to "),
    ],
)
def test_rewards_that_are_too_large_end_the_run(verifier, line, tmp_path, capsys):
    code, run = train_table(tmp_path, verifier)
    err = capsys.readouterr().err
    assert_bad_numbers(code, err)
    assert err.splitlines()[-1].startswith(f"verigrad: error: {line}")
    assert newest_step(run) == len(read_jsonl(run / "metrics.jsonl"))


def test_gradients_that_overflow_move_no_weight_and_the_third_ends_the_run(model, tmp_path, capsys):
    config = with_weights(model, tmp_path / "large", 1e30)
    run = tmp_path / "run"
    code = train(config, "--run.folder", run)
    assert_bad_numbers(code, capsys.readouterr().err)
    saved = load_file(checkpoints(run / "checkpoints")[-1] / "policy.safetensors")
    original = load_file(config.parent / "model" / "model.safetensors")
    skipped = [line["updates/skipped"] for line in read_jsonl(run / "metrics.jsonl")]
    assert sum(skipped) == 3
    assert newest_step(run) == len(skipped) - 1
    assert all(saved[name].equal(original[name]) for name in saved)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_weights_that_are_no_numbers_end_the_run(value, model, tmp_path, capsys):
    config = with_weights(model, tmp_path / "broken", value)
    code = train(config, "--run.folder", tmp_path / "run")
    assert_bad_numbers(code, capsys.readouterr().err)
    assert main(["eval", str(config.parent / "model"), str(config)]) == 4


def test_a_learning_rate_that_is_far_too_large_keeps_the_last_finished_step(
    model, tmp_path, capsys
):
    options = ["--optimizer.learning-rate", 1e20, "--optimizer.clip-norm", "off"]
    run = tmp_path / "run"
    code = train(model / "run.toml", *options, "--evaluation.every", 0, "--run.folder", run)
    assert_bad_numbers(code, capsys.readouterr().err)
    finished = read_jsonl(run / "metrics.jsonl")[-1]["step"]
    assert newest_step(run) == finished >= 1


def test_half_a_step_is_never_saved_as_a_whole_one(model, tmp_path, capsys):
    # The update of step 1 is made; the evaluation after it finds that nothing is left to sample.
    options = ["--optimizer.learning-rate", 1e20, "--evaluation.every", 1]
    run = tmp_path / "run"
    code = train(model / "run.toml", *options, "--run.folder", run)
    assert_bad_numbers(code, capsys.readouterr().err)
    assert [line["step"] for line in read_jsonl(run / "metrics.jsonl")] == [0]
    assert checkpoints(run / "checkpoints") == []
