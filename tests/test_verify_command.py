"""``verigrad verify``, and the part of it that comes before the first step of a run."""

import json
import re
from pathlib import Path

import pytest
from running import TOY, read_jsonl, write_task

from verigrad.cli import main
from verigrad.verifiers.sandbox import SANDBOXES, SandboxUnavailableError, open_sandbox

FIVE = "[Problem(id=str(n), prompt=f'{n + 2} + 1', reference=n + 3) for n in range(5)]"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_check(folder: Path, body: str) -> str:
    """A task of five problems whose verifier has this body; its name on the command line."""
    code = f"def check(completion, reference):\n    {body}\n"
    write_task(folder, f"{code}\ntask = ProblemTask('five', {FIVE}, check)")
    return "task.py:task"


HERE = ["--verifier.workers", "0"]
"""Options that save starting workers where they do not matter."""


def test_a_built_in_task_is_found_sound(capsys):
    assert main(["verify", "toy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "toy",
        "last_number runs in the trainer's process: it is bounded",
        "references  9 of 9 get full marks",
        "shortcuts   none paid, of 153 that were tried",
    ]
    assert lines[-1] == "nothing is wrong"
    table = [line.split()[0] for line in lines if line.endswith(" ms")]
    assert table == ["references", "shortcuts", "again"]


def test_a_configuration_and_a_number_of_problems_may_be_given(capsys):
    assert main(["verify", str(TOY), "--problems", "4"]) == 0
    assert "references  4 of 4 get full marks" in capsys.readouterr().out


def test_a_bad_verifier_of_ones_own_has_exit_code_1(here, capsys):
    name = write_check(here, "return str(reference) in completion")
    assert main(["verify", name]) == 1
    out = capsys.readouterr().out
    assert re.search(r"check runs in \d worker process", out)
    assert "  the answer, then a contradiction, on problem '0': " in out


def test_labelled_examples_that_disagree_have_exit_code_1(here, capsys):
    (here / "rows.jsonl").write_text('{"completion": "12", "reference": 12, "reward": 0}\n')
    assert main(["verify", "toy", "--examples", "rows.jsonl"]) == 1
    assert "examples    1 rows: 1 false accepts, 0 false refusals" in capsys.readouterr().out


def test_a_verifier_may_be_named_in_the_place_of_the_tasks_own(here, capsys):
    name = write_check(here, "return 0.0")
    assert main(["verify", name, *HERE]) == 1
    assert main(["verify", name, *HERE, "--verifier.name", "exact"]) == 0
    assert "5 of 5 get full marks" in capsys.readouterr().out


MIXED = """
model = "tabular"
[task]
name = "mixture"
mixture = ["1 functions", "2 addition"]
"""


def test_each_part_of_a_mixture_is_checked_as_it_is_alone(here, capsys):
    (here / "mixed.toml").write_text(MIXED)
    found = []
    for name in ("functions", "addition"):
        assert main(["verify", name, "--problems", "2"]) == 0
        found += [line for line in capsys.readouterr().out.splitlines() if " that were " in line]
    assert main(["verify", "mixed.toml", "--problems", "2"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"(?m)^part (\w+)\nreferences  2 of 2 get full marks$", out) == [
        "functions",
        "addition",
    ]
    assert [line for line in out.splitlines() if " that were " in line] == found
    assert re.search(r"(?m)^programs run in the sandbox \w+ \(isolated\)$", out)


def test_every_problem_of_a_part_that_is_rarely_drawn_is_checked(here, capsys):
    many = "[Problem(id=str(n), prompt=f'{n} + 1', reference=n + 1) for n in range(300)]"
    write_task(here, f"task = ProblemTask('rare', {many}, lambda text, reference: 0.0)")
    parts = '"99 toy", "99 addition", "1 task.py:task"'
    (here / "mixed.toml").write_text(MIXED.replace('"1 functions", "2 addition"', parts))
    assert main(["verify", "mixed.toml", *HERE]) == 1
    lines = capsys.readouterr().out.splitlines()
    checked = [lines[at + 1] for at, line in enumerate(lines) if line.startswith("part ")]
    assert checked[0] == "references  9 of 9 get full marks"
    assert checked[2] == "references  0 of 300 get full marks"


def test_a_part_of_a_mixture_that_asks_for_a_weaker_sandbox_is_refused(here, capsys):
    code = (
        "from verigrad.verifiers import CodeVerifier\n"
        "tests = [{'args': [1], 'expected': 1}]\n"
        "one = Problem(id='0', prompt='f', reference={'entry': 'f', 'tests': tests})\n"
        "task = ProblemTask('weak', [one], CodeVerifier(sandbox='subprocess'))\n"
    )
    write_task(here, code)
    (here / "mixed.toml").write_text(MIXED.replace("1 functions", "1 task.py:task"))
    assert main(["verify", "mixed.toml", "--task.held-out", "0"]) == 2
    assert "'subprocess', which stops accidents only" in capsys.readouterr().err


def test_examples_for_a_mixture_go_to_the_part_that_they_name(here, capsys):
    (here / "mixed.toml").write_text(MIXED.replace("1 functions", "1 toy"))
    row = '{"completion": "12", "reference": {"task": "addition", "reference": 12}, "reward": %d}\n'
    (here / "rows.jsonl").write_text(row % 1 + row % 0)
    options = ["verify", "mixed.toml", "--problems", "3", "--examples", "rows.jsonl"]
    assert main(options) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if " rows: " in line]
    assert lines == [
        "examples    0 rows: 0 false accepts, 0 false refusals, 0 failed",
        "examples    2 rows: 1 false accepts, 0 false refusals, 0 failed",
    ]
    (here / "rows.jsonl").write_text('{"completion": "12", "reference": 12, "reward": 1}\n')
    assert main(options) == 2
    assert "line 1 of the examples has the reference 12; for a mixture" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "verify needs a task or a CONFIG file, or --sandbox-check"),
        (["adition"], 'command line: task.name is "adition"; did you mean "addition"? it must be '),
        (["no.py:task"], 'command line: task.name is "no.py:task", but there is no file /'),
        (["no.toml"], "no.toml: there is no such file"),
        (["toy", "--problems", "0"], "verify: --problems is 0; it must be 1 or more"),
        (["toy", "--allow", "nan"], "verify: --allow is nan; it must be a reward of at least 0"),
        (["toy", "--allow=-1"], "verify: --allow is -1; it must be a reward of at least 0"),
        (["toy", "--examples", "no.jsonl"], "no.jsonl: cannot be read (No such file"),
        (
            ["toy", "--verifier.name", "nmber"],
            'command line: verifier.name is "nmber"; did you mean "number"? it must be exact, ',
        ),
        (
            ["toy", "--verifier.sandbox", "none"],
            'command line: verifier.sandbox is "none"; ',
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, line, here, capsys):
    assert main(["verify", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"verigrad: error: {line}")
    assert captured.err.count("\n") == 1


def needs(sandbox: str) -> None:
    try:
        open_sandbox(sandbox).close()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


def test_the_sandbox_check_says_what_is_stopped_by_trying_it(capsys):
    needs("namespaces")
    assert main(["verify", "--sandbox-check", "--verifier.sandbox", "namespaces"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "sandbox namespaces (isolated)"
    assert len(lines) >= 15
    assert all("  stopped      " in line for line in lines)


@pytest.mark.thorough
def test_the_sandbox_check_tries_every_sandbox_where_none_is_named(capsys, monkeypatch):
    needs("wasi")
    some = {name: SANDBOXES[name] for name in ("bubblewrap", "wasi", "subprocess")}
    monkeypatch.setattr("verigrad.verifiers.sandbox.SANDBOXES", some)
    monkeypatch.setenv("PATH", "/nowhere")  # Where bubblewrap is not.
    assert main(["verify", "--sandbox-check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("  ")] == [
        "programs run in the sandbox wasi (isolated)",
        "the sandbox 'bubblewrap' does not work here: bwrap is not installed",
        "sandbox wasi (isolated)",
        "sandbox subprocess (accidents)",
    ]
    assert any("  NOT STOPPED  " in line for line in lines)


# Before the first step


def train(folder: Path, name: str, *options: str) -> int:
    arguments = ["--task", name, "--run.steps", "3", "--run.folder", str(folder / "run")]
    return main(["train", str(TOY), *arguments, *options])


def test_a_reference_without_full_marks_refuses_the_run(here, capsys):
    name = write_check(here, "return float(reference != 5 and completion == str(reference))")
    assert train(here, name, *HERE) == 2
    err = capsys.readouterr().err
    assert "the verifier gives 0 to the reference of problem '2', written as '5'" in err
    assert err.count("\n") == 1
    assert not (here / "run").exists()
    assert train(here, name, *HERE, "--verifier.check", "off") == 0


def test_a_verifier_that_cannot_travel_refuses_the_run(here, capsys):
    lines = "import threading\nLOCK = threading.Lock()\ndef check(c, r):\n    return bool(LOCK)\n"
    write_task(here, f"{lines}task = ProblemTask('five', {FIVE}, check)")
    assert train(here, "task.py:task") == 2
    assert "it uses 'LOCK', a lock" in capsys.readouterr().err
    assert not (here / "run").exists()


def test_a_paid_shortcut_is_a_warning_and_the_run_says_where_the_verifier_runs(here, capsys):
    name = write_check(here, "return completion in ('', str(reference))")
    assert train(here, name, "--verifier.workers", "1") == 0
    lines = capsys.readouterr().err.splitlines()
    words = "check runs in 1 worker process: verifier.workers = 1"
    assert words in lines
    assert "warning: the verifier pays 1 for empty text, on problem '0': ''" in lines
    environment = json.loads((here / "run" / "environment.json").read_text())
    assert environment["reasons"]["verifier"] == words


def test_a_run_takes_the_verifier_that_its_configuration_names(here):
    name = write_check(here, "return 0.0")
    (here / "own.py").write_text(
        "def reward(prompts, completions, answer, **kwargs):\n"
        "    return [float(c == str(a) and p == f'{a - 1} + 1')\n"
        "            for p, c, a in zip(prompts, completions, answer)]\n"
    )
    assert train(here, name, *HERE, "--verifier.name", "own.py:reward") == 0
    assert f'name = "{here}/own.py:reward"' in (here / "run" / "config.toml").read_text()
    for line in read_jsonl(here / "run" / "rollouts.jsonl"):
        wanted = float(line["text"] == str(int(line["problem"]) + 3))
        assert (line["status"], line["reward"]) == ("scored", wanted)


def test_what_verifications_took_is_logged(here):
    name = write_check(here, "return completion == str(reference)")
    assert train(here, name, *HERE) == 0
    for line in read_jsonl(here / "run" / "metrics.jsonl"):
        assert line["verify/calls"] == line["completions/total"]
        assert 0 < line["time/verify_median"] <= line["time/verify_p95"] <= line["time/verify_max"]
        assert line["time/verify_restarts"] == 0
