"""Checkpoints while training goes on, which of them are kept, and disks that fail."""

import resource
import threading
from pathlib import Path

import pytest
import torch
from running import TABLE, TOY, assert_same_run, command, processes, read_jsonl, write_tiny_run

from verigrad.cli import main
from verigrad.config import load_config
from verigrad.errors import StorageError
from verigrad.training import run as running
from verigrad.training import saving
from verigrad.training.checkpoint import (
    Snapshot,
    checkpoints,
    problem_with,
    snapshot,
    write_checkpoint,
)
from verigrad.training.contract import fixed_keys
from verigrad.training.progress import Progress
from verigrad.training.run import new_state
from verigrad.training.saving import Saver, free_memory
from verigrad.training.setup import prepare
from verigrad.training.state import TrainerState

CONFIG = load_config(TOY, [("checkpoint.keep", "2")])


@pytest.fixture
def state() -> TrainerState:
    return new_state(prepare(CONFIG))


def saver(root: Path) -> Saver:
    return Saver(root, CONFIG, Progress(10), lambda: None)


def good(folder: Path) -> bool:
    return problem_with(folder, fixed_keys(CONFIG)) is None


# While training goes on


def test_training_goes_on_while_a_checkpoint_is_written(state, tmp_path, monkeypatch):
    """What is saved is the state as it was, whatever training makes of it meanwhile."""
    table = state.policy_tensors()["table"]
    as_it_was = table.clone()
    may_write = threading.Event()
    monkeypatch.setattr(saving, "write_checkpoint", waiting_for(may_write))
    writer = saver(tmp_path / "checkpoints")
    writer.start(state)
    table.zero_()
    assert not (tmp_path / "checkpoints").exists()
    may_write.set()
    writer.close()

    (folder,) = checkpoints(tmp_path / "checkpoints")
    from safetensors.torch import load_file

    assert torch.equal(load_file(folder / "policy.safetensors")["table"], as_it_was)
    assert good(folder)


def waiting_for(event: threading.Event):
    def write(root: Path, taken: Snapshot, *, keep: int, best: bool) -> Path:
        assert event.wait(10)
        return write_checkpoint(root, taken, keep=keep, best=best)

    return write


@pytest.mark.parametrize("free", [None, 100])
def test_without_room_for_a_copy_the_state_is_saved_before_training_goes_on(
    free, state, tmp_path, monkeypatch
):
    monkeypatch.setattr(saving, "free_memory", lambda: free)
    writer = saver(tmp_path / "checkpoints")
    writer.start(state)
    (folder,) = checkpoints(tmp_path / "checkpoints")
    assert good(folder)
    writer.close()


def test_a_limit_of_the_container_counts_where_it_is_lower(tmp_path, monkeypatch):
    for name, text in (
        ("MEMORY", "MemTotal: 900 kB\nMemAvailable:   500 kB\n"),
        ("LIMIT", "max\n"),
        ("USED", "100000\n"),
    ):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(saving, name, tmp_path / name)
    assert free_memory() == 500 * 1024
    (tmp_path / "LIMIT").write_text("300000\n")
    assert free_memory() == 200_000
    (tmp_path / "MEMORY").unlink()
    assert free_memory() is None


def test_a_checkpoint_that_cannot_be_written_is_warned_of_and_tried_again(state, tmp_path, capsys):
    root = tmp_path / "checkpoints"
    root.write_text("a file in the place of the folder")
    writer = saver(root)
    writer.start(state)
    writer.start(state)
    err = capsys.readouterr().err
    assert "step-000000 cannot be written: File exists" in err
    assert "training goes on, and the next checkpoint tries again" in err
    root.unlink()
    writer.finish(state)
    writer.close()
    assert [path.name for path in checkpoints(root)] == ["step-000000"]


def test_a_run_folder_that_has_gone_ends_the_run(state, tmp_path):
    writer = saver(tmp_path / "run" / "checkpoints")
    writer.start(state)
    with pytest.raises(StorageError, match=r"step-000000 cannot be written: No such file"):
        writer.start(state)
    writer.close()


# What is kept


def test_the_newest_and_the_best_checkpoints_are_kept(state, tmp_path):
    for step, score in enumerate([0.5, 0.75, None, 0.75, 0.25, None, None], start=1):
        state.step, state.recent = step, [{"eval/accuracy": score}]
        write_checkpoint(tmp_path, snapshot(state, {}), keep=2, best=True)
    assert [path.name for path in checkpoints(tmp_path)] == [
        "step-000004", "step-000006", "step-000007",
    ]  # fmt: skip
    write_checkpoint(tmp_path, snapshot(state, {}), keep=1, best=False)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000007"]


def test_checkpoints_are_in_the_order_of_their_steps(state, tmp_path):
    for state.step in (999_999, 1_000_000, 5):
        write_checkpoint(tmp_path, snapshot(state, {}), keep=3, best=False)
    names = ["step-000005", "step-999999", "step-1000000"]
    assert [path.name for path in checkpoints(tmp_path)] == names


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"files": {}, "configuration": {}}', "\xff"])
def test_a_manifest_of_any_content_is_only_a_reason(content, state, tmp_path):
    folder = write_checkpoint(tmp_path, snapshot(state, fixed_keys(CONFIG)), keep=1, best=True)
    assert good(folder)
    (folder / "manifest.json").write_text(content)
    assert "manifest.json does not describe its files" in problem_with(folder, fixed_keys(CONFIG))


# Disks that fail


def in_a_process(folder: Path, arguments: list[str], most_bytes: int) -> tuple[int, str]:
    """Run a command that may write no file larger than so many bytes; its code and last line."""
    process = processes.Process(target=limited, args=(folder, arguments, most_bytes))
    process.start()
    process.join()
    return process.exitcode, (folder / "err").read_text().splitlines()[-1]


def limited(folder: Path, arguments: list[str], most_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    command(folder, arguments)


@pytest.mark.thorough
def test_a_disk_that_fills_up_ends_the_run_in_one_line_and_the_rest_is_as_it_was(tmp_path):
    assert main(["train", *TABLE, "--run.folder", str(tmp_path / "whole")]) == 0
    size = (tmp_path / "whole" / "rollouts.jsonl").stat().st_size
    code, line = in_a_process(tmp_path, ["train", *TABLE, "--run.folder", "run"], size * 2 // 3)
    assert code == 5
    assert line.startswith(
        f"verigrad: error: {tmp_path / 'run' / 'rollouts.jsonl'} cannot be written: File too large"
    )
    assert "Traceback" not in (tmp_path / "err").read_text()
    keys = fixed_keys(load_config(tmp_path / "run" / "config.toml"))
    saved = checkpoints(tmp_path / "run" / "checkpoints")
    assert len(saved) >= 3
    assert [problem_with(folder, keys) for folder in saved] == [None] * len(saved)
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_checkpoints_that_do_not_fit_end_the_run_only_at_its_end(tmp_path):
    config = write_tiny_run(tmp_path)
    code, line = in_a_process(tmp_path, ["train", str(config), "--run.folder", "run"], 60_000)
    assert code == 5
    assert "step-000008 cannot be written: " in line
    err = (tmp_path / "err").read_text()
    assert err.count("training goes on, and the next checkpoint tries again") == 4
    assert [line["step"] for line in read_jsonl(tmp_path / "run" / "metrics.jsonl")] == list(
        range(9)
    )
    assert list((tmp_path / "run" / "checkpoints").iterdir()) == []
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0


def test_a_full_disk_at_the_start_is_said_in_one_line(tmp_path, capsys):
    (tmp_path / "rollouts.jsonl").symlink_to("/dev/full")
    assert main(["train", *TABLE, "--run.folder", str(tmp_path)]) == 5
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"verigrad: error: {tmp_path}/rollouts.jsonl cannot be written: No space"
    )


def test_a_folder_in_which_nothing_can_be_written_is_named(tmp_path, capsys):
    (tmp_path / "run.lock").mkdir()
    assert main(["train", str(TOY), "--run.folder", str(tmp_path)]) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"verigrad: error: {tmp_path}/run.lock cannot be written: Is a directory"
    )


def test_a_run_folder_that_vanishes_ends_the_run(tmp_path, monkeypatch, capsys):
    class Vanishing(running.LocalEngine):
        def generate(self, prompts, completions, sampling, draws, finished=None):
            if draws.step == 50:
                (tmp_path / "run").rename(tmp_path / "gone")
            return super().generate(prompts, completions, sampling, draws, finished)

    monkeypatch.setattr(running, "LocalEngine", Vanishing)
    assert main(["train", *TABLE, "--run.folder", str(tmp_path / "run")]) == 5
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith(f"verigrad: error: {tmp_path}/run/")
    assert "cannot be written: No such file or directory" in line
    assert not (tmp_path / "run").exists()
