"""Ctrl-C and SIGTERM: the first ends the run after its step, the second at once."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import (
    ON_PATH,
    TABLE,
    TOY,
    assert_same_run,
    command,
    processes,
    read_jsonl,
    start,
    wait_for_lines,
    write_task,
    write_tiny_run,
)

from verigrad.cli import main
from verigrad.training import saving
from verigrad.training import trainer as trainer_module
from verigrad.training.checkpoint import checkpoints
from verigrad.training.interrupt import Interrupt
from verigrad.training.trainer import Trainer


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The run of TABLE, never stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main(["train", *TABLE, "--run.folder", str(run)]) == 0
    return run


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_after_its_step_and_a_resume_goes_on(number, code, whole, tmp_path):
    run = tmp_path / "run"
    process = start(tmp_path, "train", *TABLE, "--run.folder", "run")
    wait_for_lines(run / "metrics.jsonl", 200, process)
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == code
    step = read_jsonl(run / "metrics.jsonl")[-1]["step"]
    assert checkpoints(run / "checkpoints")[-1].name == f"step-{step:06d}"
    assert 199 <= step < 300
    *_, last = (tmp_path / "err").read_text().splitlines()
    assert last == f"stopped after step {step}; go on with: verigrad train --resume {run}"
    assert "Traceback" not in (tmp_path / "err").read_text()
    assert main(["train", "--resume", str(run)]) == 0
    assert_same_run(run, whole)


SLOW = """
import time
from pathlib import Path

def verifier(completion, reference):
    Path("verifying").touch()
    time.sleep(0.2)
    return 1.0

slow = ProblemTask("slow", [Problem(id="a", prompt="a", reference=1)], verifier)
"""


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    write_task(tmp_path, SLOW)
    (tmp_path / "run.toml").write_text(
        'task = {name = "task.py:slow", held_out = 0}\nmodel = "tabular"\n'
        'sampling = {completions = 100}\nverifier = {check = "off"}'
    )
    process = start(tmp_path, "train", "run.toml", "--run.folder", "run")
    while not (tmp_path / "verifying").exists():
        assert process.is_alive()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join(timeout=10)
    stopped = process.exitcode
    process.kill()
    assert stopped == 130, "the step of 20 seconds was not cut short"
    *_, last = (tmp_path / "err").read_text().splitlines()
    assert last.startswith("stopped after step 0; go on with: verigrad train --resume ")
    assert [path.name for path in checkpoints(tmp_path / "run" / "checkpoints")] == ["step-000000"]


def train_with_a_slow_disk(folder: Path) -> None:
    write = saving.write_checkpoint

    def slowly(*arguments, **options):
        (folder / "saving").touch()
        time.sleep(0.5)
        return write(*arguments, **options)

    saving.write_checkpoint = slowly
    options = ["--run.steps", "100000", "--checkpoint.every", "0", "--run.folder", "run"]
    command(folder, ["train", str(TOY), *options])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_lets_the_last_checkpoint_be_written(number, code, tmp_path):
    process = processes.Process(target=train_with_a_slow_disk, args=(tmp_path,))
    process.start()
    wait_for_lines(tmp_path / "run" / "metrics.jsonl", 20, process)
    os.kill(process.pid, number)
    while not (tmp_path / "saving").exists():
        assert process.is_alive()
        time.sleep(0.01)
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == code
    (saved,) = checkpoints(tmp_path / "run" / "checkpoints")
    step = read_jsonl(tmp_path / "run" / "metrics.jsonl")[-1]["step"]
    assert saved.name == f"step-{step:06d}"
    assert "Traceback" not in (tmp_path / "err").read_text()


def test_sigterm_leaves_nothing_of_a_check_of_determinism(tmp_path):
    environment = os.environ | ON_PATH | {"TMPDIR": str(tmp_path)}
    check = ["train", str(TOY), "--run.steps", "10", "--check-determinism", "100000"]
    with subprocess.Popen(
        [sys.executable, "-m", "verigrad", *check], env=environment, stderr=subprocess.PIPE
    ) as process:
        while not (made := list(tmp_path.glob("*/first/run.lock"))) or not made[0].read_text():
            assert process.poll() is None
            time.sleep(0.01)
        child = int(made[0].read_text().split()[1])
        process.terminate()
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (143, b"verigrad: error: ended by SIGTERM\n")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def end_slowly(interrupt: Interrupt) -> None:
    with interrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)


def test_a_step_that_outlasts_the_grace_is_stopped_as_if_by_a_second_signal():
    before = signal.getsignal(signal.SIGALRM)
    interrupt = Interrupt(grace=0.05)
    with pytest.raises(KeyboardInterrupt):
        end_slowly(interrupt)
    assert interrupt.exit_code == 143
    assert signal.getsignal(signal.SIGALRM) is before


def test_a_step_that_ends_within_the_grace_hears_no_more_of_it():
    with Interrupt(grace=0.05) as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
    assert interrupt.exit_code == 130


def test_the_alarm_is_a_verifiers_own_until_a_signal_comes():
    with Interrupt():
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_step_stopped_while_it_changes_the_policy_is_not_saved(tmp_path, monkeypatch):
    """The weights are then neither those before the step nor those after it."""
    config = write_tiny_run(tmp_path)
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert main(["train", str(config), "--run.folder", str(whole)]) == 0
    made = trainer_module.update
    calls = []

    def stopped(*arguments: object, **options: object) -> object:
        calls.append(1)
        done = made(*arguments, **options)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        return done

    monkeypatch.setattr(trainer_module, "update", stopped)
    assert main(["train", str(config), "--run.folder", str(run)]) == 143
    monkeypatch.undo()
    assert [path.name for path in checkpoints(run / "checkpoints")] == ["step-000002"]
    assert main(["train", "--resume", str(run)]) == 0
    assert_same_run(run, whole)


def test_a_run_stopped_before_its_first_step_evaluates_once(tmp_path, monkeypatch):
    config = write_tiny_run(tmp_path)
    assert main(["train", str(config), "--run.folder", str(tmp_path / "whole")]) == 0
    before = Trainer._before

    def stopped(trainer: object) -> None:
        before(trainer)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "_before", stopped)
    assert main(["train", str(config), "--run.folder", str(tmp_path / "run")]) == 130
    monkeypatch.undo()
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole")
