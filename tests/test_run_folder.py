"""A run folder that is not as the run left it: taken, half made, linked, copied or cut."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import ON_PATH, TABLE, TOY, assert_same_run, snapshot

from verigrad.cli import main
from verigrad.errors import RunFolderError
from verigrad.training import run as running
from verigrad.training.checkpoint import checkpoints
from verigrad.training.lock import locked


def train(*arguments: object) -> int:
    return main(["train", *map(str, arguments)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The run of TABLE."""
    run = tmp_path_factory.mktemp("finished") / "run"
    assert train(*TABLE, "--run.folder", run) == 0
    return run


@pytest.fixture
def run(finished, tmp_path) -> Path:
    """A copy of it, to do with as a test likes."""
    return shutil.copytree(finished, tmp_path / "run")


# A new run


@pytest.mark.parametrize("left", ["metrics.jsonl", "rollouts.jsonl", "checkpoints", "final"])
def test_a_new_run_adds_to_nothing_that_another_one_left(left, run, capsys):
    for path in run.iterdir():
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = snapshot(run)
    assert train(*TABLE, "--run.folder", run) == 2
    assert f"run.folder {run} holds {left} of another run" in capsys.readouterr().err
    assert snapshot(run) == before


def test_a_start_that_was_cut_short_leaves_the_folder_free(tmp_path):
    (tmp_path / "config.toml.partial").mkdir()
    assert train(*TABLE, "--run.folder", tmp_path) == 5
    assert (tmp_path / "environment.json").exists()
    (tmp_path / "config.toml.partial").rmdir()
    assert train(*TABLE, "--run.folder", tmp_path) == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["train", str(TOY), "--run.folder"], "cannot be made: File name too long"),
        (["train", "--resume"], "holds no run: it has no config.toml and environment.json"),
        (["replay"], "holds no run: it has no config.toml and environment.json"),
        (["eval"], "is neither an alias nor a folder that exists"),
    ],
)
def test_a_folder_whose_name_is_too_long_is_no_traceback(command, words, tmp_path, capsys):
    rest = {"replay": ["3"], "eval": [str(TOY), "--model.name", "smollm2-135m"]}
    assert main([*command, str(tmp_path / ("x" * 300)), *rest.get(command[0], [])]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_link_to_itself_holds_no_run(tmp_path, capsys):
    (tmp_path / "run").symlink_to("run")
    assert train("--resume", tmp_path / "run") == 2
    assert f"{tmp_path / 'run'} holds no run: " in capsys.readouterr().err


# A resume


def test_a_run_without_its_environment_is_told_what_is_missing(run, capsys):
    (run / "environment.json").unlink()
    assert train("--resume", run) == 2
    assert f"{run} holds a run, but its environment.json is missing" in capsys.readouterr().err


def test_lines_that_were_removed_are_warned_of(run, capsys):
    (run / "rollouts.jsonl").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:201]))
    assert train("--resume", run) == 0
    err = capsys.readouterr().err
    assert f"warning: {run}/metrics.jsonl ends with step 200, and the run goes on after" in err
    assert f"warning: {run}/rollouts.jsonl ends with step 0, and the run goes on after" in err


def test_a_checkpoint_under_the_name_of_a_later_step_is_not_taken_for_it(run, finished, capsys):
    *_, newest = checkpoints(run / "checkpoints")
    shutil.copytree(newest, newest.with_name("step-000320"))
    assert train("--resume", run) == 0
    assert "step-000320 cannot be used and is set aside: it is of step 300" in (
        capsys.readouterr().err
    )
    assert_same_run(run, finished)


def test_checkpoints_and_a_final_policy_elsewhere_are_replaced_and_stay_there(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in [*checkpoints(run / "checkpoints"), run / "final"]:
        shutil.move(path, elsewhere / path.name)
        path.symlink_to(elsewhere / path.name)
    there = snapshot(elsewhere)
    assert train("--resume", run, "--run.steps", 360) == 0
    names = [path.name for path in sorted((run / "checkpoints").iterdir())]
    assert names == ["step-000320", "step-000340", "step-000360"]
    assert not (run / "final").is_symlink()
    assert snapshot(elsewhere) == there


# While it goes on


@pytest.mark.parametrize("name", ["metrics.jsonl", "rollouts.jsonl"])
def test_lines_removed_under_a_run_are_said_at_its_end(name, tmp_path, monkeypatch, capsys):
    class Removing(running.LocalEngine):
        def generate(self, prompts, completions, sampling, draws, finished=None):
            if draws.step == 290:
                (tmp_path / "run" / name).unlink(missing_ok=True)
            return super().generate(prompts, completions, sampling, draws, finished)

    monkeypatch.setattr(running, "LocalEngine", Removing)
    assert train(*TABLE, "--run.folder", tmp_path / "run") == 5
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"verigrad: error: {tmp_path / 'run' / name} cannot be read: No such")
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].name == "step-000300"
    assert (tmp_path / "run" / "final").is_dir()


HOLDER = """
import os, signal, sys, time
from pathlib import Path
from verigrad.training.lock import locked

with locked(Path(sys.argv[1])):
    if os.fork() == 0:
        # Said by the child, which has closed its copy of the lock by then.
        print(os.getpid(), flush=True)
    time.sleep(60)
"""


def test_what_a_run_has_forked_does_not_hold_its_folder_when_it_has_been_killed(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    environment = os.environ | ON_PATH
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        try:
            held = pytest.raises(RunFolderError, match=f"written by process {holder.pid} ")
            with held, locked(tmp_path):
                pass
            holder.kill()
            holder.wait()
            with locked(tmp_path):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(file, operation):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    words = r"run.lock cannot be locked: Function not implemented"
    with pytest.raises(RunFolderError, match=words), locked(tmp_path):
        pass
