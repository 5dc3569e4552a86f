"""What a person sees: lines that can be read, and nothing that a model wrote as a command."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import TOY, processes, read_jsonl, write_task

from verigrad.cli import main
from verigrad.diagnosis import Cause, Finding, Metrics
from verigrad.escaping import one_line, printable
from verigrad.training.progress import Progress, duration

STEP: Metrics = {
    "step": 3,
    "reward/mean": 0.456,
    "groups/with_signal": 5,
    "groups/total": 6,
    "eval/accuracy": None,
    "time/step": 10.0,
    "time/tokens_per_second": 1234.5,
}


def shown(steps: int, *metrics: Metrics) -> None:
    progress = Progress(steps)
    for one in metrics:
        progress.step(one)


def test_a_step_is_a_line_that_says_how_it_goes(capsys):
    shown(20, STEP)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "step  3/20  reward  0.46  groups with signal 5/6  1,234 tokens/s  2 min 50 s left\n"
    )


def test_a_measured_accuracy_is_shown(capsys):
    shown(3, STEP | {"eval/accuracy": 0.75})
    assert capsys.readouterr().err == (
        "step 3/3  reward  0.46  held-out accuracy 0.75  groups with signal 5/6  1,234 tokens/s  "
        "0 s left\n"
    )


def test_a_step_without_a_reward_shows_none(capsys):
    shown(3, STEP | {"reward/mean": None, "time/tokens_per_second": None})
    assert capsys.readouterr().err.startswith("step 3/3  reward  none  groups with signal 5/6  0 t")


def test_fast_steps_share_a_line_unless_they_matter(capsys):
    steps = [STEP | {"step": step} for step in range(1, 9)]
    steps[4] |= {"eval/accuracy": 0.5}
    shown(8, *steps)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["1/8", "5/8", "8/8"]


def test_the_time_left_is_that_of_the_latest_steps(capsys):
    slow = [STEP | {"step": step, "time/step": 100.0} for step in range(1, 11)]
    fast = [STEP | {"step": step, "time/step": 1.0} for step in range(11, 31)]
    shown(30 + 60, *slow, *fast, STEP | {"step": 30, "time/step": 1.0, "eval/accuracy": 0.5})
    assert capsys.readouterr().err.splitlines()[-1].endswith("1 min 0 s left")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7510, "2 h 5 min")],
)
def test_a_duration_is_said_as_people_say_it(seconds, words):
    assert duration(seconds) == words


# What a model writes

HOSTILE = "\x1b[2J\x1b]0;title\x07\rok\x08\x9b\u202e\udc80[bold]x[/bold]"
SHOWN = r"\x1b[2J\x1b]0;title\x07\x0dok\x08\x9b\x202e\xdc80[bold]x[/bold]"


def test_control_characters_are_shown_and_not_obeyed():
    assert printable(HOSTILE) == SHOWN
    assert printable("19\n\tünï😀") == "19\n\tünï😀"


def test_a_text_cannot_pass_for_another_line():
    text = "a name\nverigrad: error: forged\u2028\u2029\x85\ttab"
    assert one_line(text) == r"a name\x0averigrad: error: forged\x2028\x2029\x85\x09tab"


def test_nothing_a_model_writes_reaches_the_terminal_as_it_is(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    progress = Progress(3)
    progress.note(HOSTILE)
    progress.warn(Finding(cause=Cause.FAILURES, step=2, number=0.5, message=HOSTILE))
    progress.result(HOSTILE)
    progress.comparison([("a prompt", HOSTILE, HOSTILE)])
    captured = capsys.readouterr()
    assert captured.err == f"{SHOWN}\nstep 2: failures: {SHOWN}\n"
    assert captured.out.startswith(f"{SHOWN}\n")
    assert captured.out.count(SHOWN) == 3
    assert not set(captured.out + captured.err) & set("\x1b\x07\r\x08\x9b\u202e\udc80")


def test_an_error_shows_the_control_characters_of_its_example(tmp_path, capsys):
    code = (
        "def check(completion, reference):\n"
        "    raise ValueError('\\x1b[2J' + completion)\n"
        "task = ProblemTask('t', [Problem(id='a', prompt='a', reference=1)], check)"
    )
    file = write_task(tmp_path, code)
    options = ["--task", f"{file}:task", "--run.folder", str(tmp_path / "run")]
    assert main(["train", str(TOY), *options]) == 3
    assert "\x1b" not in capsys.readouterr().err


def test_quiet_shows_nothing(capsys):
    progress = Progress(3, quiet=True)
    progress.note("a")
    progress.step(STEP)
    progress.result("b")
    progress.comparison([("a", "b", "c")])
    assert capsys.readouterr() == ("", "")


# Where nobody reads


def _pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def _unread(folder: Path, output: Callable[[], int]) -> None:
    """Train with both outputs going where nothing can be written."""
    for number in (1, 2):
        os.dup2(output(), number)
    os.chdir(folder)
    sys.exit(main(["train", str(TOY), "--run.steps", "50", "--run.folder", "run"]))


@pytest.mark.thorough
@pytest.mark.parametrize("output", [_pipe_without_reader, _full_disk])
def test_a_run_goes_on_when_nobody_reads_its_output(output, tmp_path):
    process = processes.Process(target=_unread, args=(tmp_path, output))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert len(read_jsonl(tmp_path / "run" / "metrics.jsonl")) == 50
    assert (tmp_path / "run" / "final" / "policy.json").exists()
