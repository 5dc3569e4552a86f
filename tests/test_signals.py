"""Ctrl-C and SIGTERM: the first ends the run after its step, the second at once."""

import os
import signal
import time
from pathlib import Path

import pytest
from running import (
    TABLE,
    assert_same_run,
    read_jsonl,
    start,
    wait_for_lines,
    write_task,
    write_tiny_run,
)

from verigrad.cli import main
from verigrad.training.checkpoint import checkpoints
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
    wait_for_lines(run / "metrics.jsonl", 30, process)
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == code
    step = read_jsonl(run / "metrics.jsonl")[-1]["step"]
    assert checkpoints(run / "checkpoints")[-1].name == f"step-{step:06d}"
    assert 29 <= step < 300
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
    assert (tmp_path / "err").read_text().splitlines()[-1] == "verigrad: error: interrupted"
    assert not (tmp_path / "run" / "checkpoints").exists()


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
