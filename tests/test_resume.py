"""A resume is the same run, bit for bit, wherever and however the run was stopped."""

import json
import linecache
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType

import pytest
import torch
from running import (
    TABLE,
    TOY,
    assert_same_run,
    kill_after,
    read_jsonl,
    snapshot,
    start,
    wait_for_lines,
    write_task,
    write_tiny_run,
)

import verigrad
from verigrad.cli import main
from verigrad.config import load_config
from verigrad.errors import ConfigError, RunFolderError, TaskError
from verigrad.policies.causal_lm import CausalLM
from verigrad.training import setup as preparation
from verigrad.training.checkpoint import checkpoints
from verigrad.training.lock import locked


def train(*arguments: object) -> int:
    return main(["train", *map(str, arguments)])


def resume(run: Path, *arguments: object) -> int:
    return train("--resume", run, *arguments)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The run of TABLE, never stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert train(*TABLE, "--run.folder", run) == 0
    return run


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory) -> Path:
    """The run of TABLE, killed at some step after 200: near its end, as each test goes there."""
    folder = tmp_path_factory.mktemp("killed")
    kill_after(folder / "run", 200, start(folder, "train", *TABLE, "--run.folder", "run"))
    return folder / "run"


@pytest.fixture
def killed(killed_once, tmp_path) -> Path:
    """A copy of the killed run, to do with as a test likes."""
    return shutil.copytree(killed_once, tmp_path / "run")


@pytest.fixture
def complaint(capsys) -> Callable[..., str]:
    """Resume a run that must be refused with one line; return that line."""

    def complaint(run: Path, *arguments: object) -> str:
        assert resume(run, *arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        return captured.err.removeprefix("verigrad: error: ").rstrip()

    return complaint


# Killed


@pytest.mark.thorough
def test_a_table_killed_six_times_ends_as_if_it_had_never_been(whole, tmp_path):
    moments = random.Random(0)
    run = tmp_path / "run"
    process = start(tmp_path, "train", *TABLE, "--run.folder", "run")
    for fewest in (5, 40, 80, 120, 160, 200):
        kill_after(run, fewest + moments.randrange(20), process, moments.uniform(0.0, 0.004))
        process = start(tmp_path, "train", "--resume", "run")
    process.join()
    assert process.exitcode == 0, (tmp_path / "err").read_text()
    assert_same_run(run, whole)


def test_a_run_killed_before_its_first_checkpoint_starts_again(whole, tmp_path):
    kill_after(tmp_path / "run", 4, start(tmp_path, "train", *TABLE, "--run.folder", "run"))
    assert checkpoints(tmp_path / "run" / "checkpoints") == []
    assert resume(tmp_path / "run") == 0
    assert_same_run(tmp_path / "run", whole)


@pytest.mark.thorough
def test_a_language_model_killed_twice_ends_as_if_it_had_never_been(tmp_path):
    config = write_tiny_run(tmp_path)
    assert train(config, "--run.folder", tmp_path / "whole") == 0
    run = tmp_path / "run"
    process = start(tmp_path, "train", config, "--run.folder", "run")
    for fewest in (2, 6):
        kill_after(run, fewest, process, 0.002)
        process = start(tmp_path, "train", "--resume", "run")
    process.join()
    assert process.exitcode == 0, (tmp_path / "err").read_text()
    assert_same_run(run, tmp_path / "whole")
    assert max(line["groups/with_signal"] for line in read_jsonl(run / "metrics.jsonl")) > 0


def test_every_checkpoint_holds_all_that_the_rest_of_the_run_needs(tmp_path):
    options = [TOY, "--run.steps", 40, "--checkpoint.every", 5, "--checkpoint.keep", 8]
    whole = tmp_path / "whole"
    assert train(*options, "--run.folder", whole) == 0
    for kept in (1, 2, 7):
        run = shutil.copytree(whole, tmp_path / f"from-{5 * kept}")
        for later in checkpoints(run / "checkpoints")[kept:]:
            shutil.rmtree(later)
        assert resume(run) == 0
        assert_same_run(run, whole)


# What a crash leaves behind


def test_half_a_line_at_the_end_is_set_aside(killed, whole):
    for name in ("metrics.jsonl", "rollouts.jsonl"):
        with (killed / name).open("a") as file:
            file.write('{"step": 201, "reward/me')
    assert resume(killed) == 0
    assert_same_run(killed, whole)


def test_what_happened_after_the_checkpoint_is_kept_beside_the_run(killed, whole):
    step = int(checkpoints(killed / "checkpoints")[-1].name.removeprefix("step-"))
    lines = (killed / "metrics.jsonl").read_text().splitlines(keepends=True)
    # The line of step 0 is there too.
    later = lines[step + 1 :]
    assert resume(killed) == 0
    assert (killed / "metrics.set-aside.jsonl").read_text() == "".join(later)


def test_an_unfinished_checkpoint_is_not_taken_for_one(killed, whole):
    newest = checkpoints(killed / "checkpoints")[-1]
    next_step = int(newest.name.removeprefix("step-")) + 20
    for name in ("step-000005.partial", f"step-{next_step:06d}.partial", "step-000999.partial"):
        (killed / "checkpoints" / name).mkdir(exist_ok=True)
        (killed / "checkpoints" / name / "policy.safetensors").write_bytes(b"half")
    assert checkpoints(killed / "checkpoints")[-1] == newest
    assert resume(killed) == 0
    assert not list((killed / "checkpoints").glob("*.partial"))
    assert_same_run(killed, whole)


def test_half_a_final_policy_is_replaced(killed, whole):
    (killed / "final.partial").mkdir()
    (killed / "final.partial" / "leftover.json").write_text("{")
    assert resume(killed) == 0
    assert_same_run(killed, whole)


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def fill_with_noise(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(path.stat().st_size))


def flip_one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("policy.safetensors", cut_in_half),
        ("optimizer.safetensors", flip_one_bit),
        ("state.json", fill_with_noise),
        ("reference.safetensors", Path.unlink),
        ("manifest.json", cut_in_half),
        ("manifest.json", Path.unlink),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    name, damage, killed, whole, capsys
):
    *_, before, newest = checkpoints(killed / "checkpoints")
    damage(newest / name)
    assert resume(killed) == 0
    err = capsys.readouterr().err
    assert f"warning: checkpoint {newest} cannot be used and is set aside: " in err
    assert name in err
    assert f"after step {int(before.name.removeprefix('step-'))}\n" in err
    assert newest.with_name(newest.name + ".set-aside").is_dir()
    assert_same_run(killed, whole)


def test_when_no_checkpoint_can_be_used_nothing_changes(killed, complaint):
    saved = checkpoints(killed / "checkpoints")
    for folder in saved:
        flip_one_bit(folder / "policy.safetensors")
    before = snapshot(killed)
    line = complaint(killed)
    assert line.startswith(f"no checkpoint in {killed}/checkpoints can be used (step-")
    assert line.count("policy.safetensors: not what manifest.json says") == len(saved)
    assert snapshot(killed) == before


def test_a_checkpoint_of_another_configuration_is_named(killed, complaint):
    config = killed / "config.toml"
    config.write_text(config.read_text().replace("learning_rate = 0.5", "learning_rate = 0.25"))
    assert (
        "it is of another configuration: optimizer.learning_rate was 0.5 and is 0.25"
        in complaint(killed)
    )


def test_the_checkpoint_before_a_damaged_one_leads_to_the_same_run(killed, whole):
    shutil.rmtree(checkpoints(killed / "checkpoints")[-1])
    assert resume(killed) == 0
    assert_same_run(killed, whole)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"decisions": {"threads": 1}}'])
def test_a_damaged_environment_is_named(content, killed, complaint):
    (killed / "environment.json").write_text(content)
    assert complaint(killed).startswith(f"{killed}/environment.json does not hold the decisions")


def test_a_line_made_again_that_is_not_as_it_was_is_a_finding(killed, capsys):
    shutil.rmtree(checkpoints(killed / "checkpoints")[-1])
    path = killed / "rollouts.jsonl"
    lines = path.read_text().splitlines()
    record = json.loads(lines[-20])
    lines[-20] = json.dumps(record | {"status": "failed", "reward": None})
    path.write_text("".join(f"{line}\n" for line in lines))
    assert resume(killed) == 0
    (found,) = [
        finding
        for finding in json.loads((killed / "findings.json").read_text())
        if finding["cause"] == "remade"
    ]
    assert found["step"] == record["step"]
    assert found["number"] == pytest.approx(1 / 9, abs=0.1)
    assert f"of problem '{record['problem']}' ({record['purpose']})" in found["message"]
    assert f"step {record['step']}: remade: 1 of " in capsys.readouterr().err


# Decisions


def test_a_resume_takes_the_decisions_of_its_run(tmp_path, monkeypatch, capsys):
    config = write_tiny_run(tmp_path)
    run = tmp_path / "run"
    assert train(config, "--run.folder", run, "--run.steps", 2) == 0
    environment = json.loads((run / "environment.json").read_text())
    environment["decisions"] |= {"shares_prompts": False, "precision": "bfloat16", "threads": 1}
    (run / "environment.json").write_text(json.dumps(environment))

    made = []

    class Watched(CausalLM):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(preparation, "CausalLM", Watched)
    assert resume(run, "--run.steps", 4) == 0
    assert [(policy.shares_prompts, policy.precision) for policy in made] == [(False, "bfloat16")]
    after = json.loads((run / "environment.json").read_text())
    assert after["decisions"] == environment["decisions"]
    assert after["reasons"] == environment["reasons"]
    assert after["resumes"] == [{"after_step": 2, "inexact": []}]


def test_a_resume_with_fewer_cpus_says_that_it_is_not_exact(killed, monkeypatch, capsys):
    environment = json.loads((killed / "environment.json").read_text())
    environment["decisions"]["threads"] = 10_000
    (killed / "environment.json").write_text(json.dumps(environment))
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    assert resume(killed, "--evaluation.every", 0) == 0
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "not exact" in x]
    assert line.startswith("warning: the resume is not exact: 10000 threads as the run")


def test_a_resume_with_other_software_says_that_it_is_not_exact(killed, capsys):
    environment = json.loads((killed / "environment.json").read_text())
    environment["versions"]["torch"] = "1.0"
    environment["gpu"] = "a large one"
    (killed / "environment.json").write_text(json.dumps(environment))
    assert resume(killed) == 0
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "not exact" in x]
    assert line == (
        "warning: the resume is not exact: gpu was a large one and is None; "
        f"torch was 1.0 and is {torch.__version__}"
    )
    resumes = json.loads((killed / "environment.json").read_text())["resumes"]
    assert len(resumes[0]["inexact"]) == 2


def test_a_resume_in_another_sandbox_names_both_and_is_not_exact(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tests = "{'entry': 'f', 'tests': [{'args': [1], 'expected': 1}]}"
    write_task(
        tmp_path,
        "from verigrad.verifiers import CodeVerifier\n"
        f"one = Problem(id='0', prompt='f', reference={tests})\n"
        "task = ProblemTask('code', [one], CodeVerifier())\n",
    )
    options = ["--task", "task.py:task", "--task.held_out", 0, "--verifier.sandbox", "subprocess"]
    sizes = ["--sampling.problems", 1, "--sampling.completions", 2, "--verifier.workers", 0]
    assert train(TOY, *options, *sizes, "--run.steps", 1, "--run.folder", "run") == 0
    environment = json.loads(Path("run/environment.json").read_text())
    assert environment["sandbox"] == "subprocess"
    capsys.readouterr()
    assert resume(Path("run"), "--run.steps", 2) == 0
    assert "not exact" not in capsys.readouterr().err
    Path("run/environment.json").write_text(json.dumps(environment | {"sandbox": "wasi"}))
    assert resume(Path("run"), "--run.steps", 3) == 0
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "not exact" in x]
    assert line == "warning: the resume is not exact: sandbox was wasi and is subprocess"


# What may change


def test_a_finished_run_says_so_and_stays_as_it_is(whole, tmp_path, capsys):
    run = shutil.copytree(whole, tmp_path / "run")
    assert resume(run) == 0
    captured = capsys.readouterr()
    assert "the run is finished already" in captured.err
    assert "run.steps" in captured.err
    assert_same_run(run, whole)


def test_more_steps_continue_a_finished_run(tmp_path):
    options = [TOY, "--checkpoint.every", 50]
    assert train(*options, "--run.steps", 200, "--run.folder", tmp_path / "whole") == 0
    assert train(*options, "--run.steps", 100, "--run.folder", tmp_path / "run") == 0
    assert resume(tmp_path / "run", "--run.steps", 200) == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert load_config(tmp_path / "run" / "config.toml").run.steps == 200


def test_evaluation_and_checkpoints_may_change(killed):
    options = ["--evaluation.every", 7, "--evaluation.problems", 1, "--checkpoint.keep", 1]
    assert resume(killed, *options, "--checkpoint.every", 150) == 0
    assert checkpoints(killed / "checkpoints")[-1].name == "step-000300"
    config = load_config(killed / "config.toml")
    assert (config.evaluation.every, config.evaluation.problems) == (7, 1)
    assert read_jsonl(killed / "metrics.jsonl")[-1]["eval/problems"] == 1


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("--run.steps", "299", "run.steps is 299, but the run has 300; a resume may only raise it"),
        ("--run.seed", "1", "run.seed may not change in a resume"),
        ("--run.threads", "2", "run.threads may not change in a resume"),
        ("--optimizer.learning-rate", "0.1", "optimizer.learning_rate may not change in a resume"),
        ("--sampling.completions", "4", "sampling.completions may not change in a resume"),
        ("--algorithm", "rloo", "algorithm.preset may not change in a resume"),
        ("--task", "addition", "task.name may not change in a resume"),
        ("--model", "smollm2-135m", "model.name may not change in a resume"),
        ("--verifier.max-failures", "1", "verifier.max_failures may not change in a resume"),
    ],
)
def test_what_makes_the_run_may_not_change(option, value, line, killed, complaint):
    before = snapshot(killed)
    assert complaint(killed, option, value).startswith(line)
    assert snapshot(killed) == before


def test_a_folder_without_a_run_is_named(tmp_path, complaint):
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "missing"):
        assert complaint(folder).startswith(f"{folder} holds no run: ")
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"]


def test_a_run_may_move(killed, whole, tmp_path):
    moved = killed.rename(tmp_path / "elsewhere")
    assert resume(moved) == 0
    assert_same_run(moved, whole)
    assert not killed.exists()


# Files that the run is computed from

TASK = """
from verigrad import Problem, ProblemTask
from numbers_to_guess import NUMBERS

def check(text, wanted):
    return text == str(wanted)

problems = [Problem(id=f"{n}", prompt=f"{n}", reference=n) for n in NUMBERS]
guess = ProblemTask("guess", problems, check)
"""


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """A folder with a task, the module that it imports, and a run of it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "numbers_to_guess.py").write_text("NUMBERS = range(10)")
    (tmp_path / "run.toml").write_text(
        'task = {name = "task.py:guess", held_out = 0}\nmodel = "tabular"\nrun.steps = 5\n'
        'run.folder = "run"\n'
        "sampling = {problems = 2, max_new_tokens = 1}"
    )
    assert train(tmp_path / "run.toml") == 0
    yield tmp_path
    sys.modules.pop("numbers_to_guess", None)


@pytest.mark.parametrize(
    ("name", "old", "new", "named"),
    [
        ("task.py", "text == ", "text != ", "{folder}/task.py, the source of the verifier"),
        ("numbers_to_guess.py", "10", "0, 10", "{folder}/numbers_to_guess.py"),
    ],
)
def test_a_changed_file_is_refused_unless_asked_for(name, old, new, named, own, complaint):
    file = own / name
    file.write_text(file.read_text().replace(old, new))
    linecache.clearcache()
    before = snapshot(own / "run")
    line = complaint(own / "run", "--run.steps", 8)
    assert line.startswith("what the run is computed from has changed since it started: ")
    assert named.format(folder=own) in line
    assert "--accept-changed-files" in line
    assert snapshot(own / "run") == before

    assert resume(own / "run", "--run.steps", 8, "--accept-changed-files") == 0
    assert resume(own / "run", "--run.steps", 9) == 0, "what was accepted is what counts now"
    environment = json.loads((own / "run" / "environment.json").read_text())
    assert environment["resumes"][0]["inexact"][0].endswith("has changed")


def test_problems_read_from_a_changed_data_file_are_noticed(tmp_path, complaint, capsys):
    data = tmp_path / "numbers.json"
    data.write_text("[1, 2, 3, 4]")
    write_task(
        tmp_path,
        "import json\nfrom pathlib import Path\n"
        "numbers = json.loads(Path(__file__).with_name('numbers.json').read_text())\n"
        "problems = [Problem(id=f'{n}', prompt=f'{n}', reference=n * n) for n in numbers]\n"
        "task = ProblemTask('squares', problems, lambda text, wanted: text == str(wanted))",
    )
    (tmp_path / "run.toml").write_text(
        'task = {name = "task.py:task", held_out = 0}\nmodel = "tabular"\nrun.steps = 2\n'
        'run.folder = "run"'
    )
    assert train(tmp_path / "run.toml") == 0
    capsys.readouterr()
    data.write_text("[1, 2, 3, 5]")
    assert "the problems of the task" in complaint(tmp_path / "run")


def test_accepting_changed_files_belongs_to_a_resume(capsys):
    assert train(TOY, "--accept-changed-files") == 2
    assert "--accept-changed-files goes with --resume RUN" in capsys.readouterr().err


# A task of the caller's


def guess() -> verigrad.ProblemTask:
    problems = [verigrad.Problem(id=f"{n}", prompt=f"{n}", reference=n) for n in range(10)]
    return verigrad.ProblemTask("guess", problems, lambda text, wanted: text == str(wanted))


GUESS = {
    "model": "tabular",
    "task": {"held_out": 0.0},
    "sampling": {"problems": 2, "max_new_tokens": 1},
    "optimizer": {"learning_rate": 0.5},
    "evaluation": {"problems": 0},
}


def test_a_task_given_in_python_is_given_again_to_resume(tmp_path):
    runs = [tmp_path / "whole", tmp_path / "run"]
    for run, steps in zip(runs, (40, 20), strict=True):
        config = GUESS | {"run": {"folder": str(run), "steps": steps}}
        assert verigrad.train(config, task=guess(), quiet=True).steps == steps
    result = verigrad.resume(runs[1], [("run.steps", "40")], task=guess(), quiet=True)
    assert (result.steps, result.exit_code, result.folder) == (40, 0, runs[1])
    assert_same_run(runs[1], runs[0])


def test_a_verifier_of_code_that_has_no_module_is_trained_with(tmp_path):
    check = FunctionType(guess().verifier.__code__, {"__builtins__": __builtins__})
    assert check.__module__ is None
    task = verigrad.ProblemTask("guess", guess().problems, check)
    config = GUESS | {"run": {"folder": str(tmp_path / "run"), "steps": 2}}
    assert verigrad.train(config, task=task, quiet=True).steps == 2


@pytest.mark.parametrize("given", ["run.toml", None, ["task"]])
def test_what_is_no_configuration_is_refused_with_what_reads_one(given):
    with pytest.raises(ConfigError, match=r"no configuration; .*verigrad\.load_config has read"):
        verigrad.train(given)


def test_without_its_task_the_resume_says_how_to_give_it(tmp_path, complaint):
    run = tmp_path / "run"
    config = GUESS | {"run": {"folder": str(run), "steps": 5}}
    verigrad.train(config, task=guess(), quiet=True)
    before = snapshot(run)
    with pytest.raises(TaskError, match=r"verigrad\.resume\(folder, task=\.\.\.\)"):
        verigrad.resume(run, quiet=True)
    assert "the task 'guess' was given from Python" in complaint(run)
    assert snapshot(run) == before


def test_another_task_given_in_python_is_refused(tmp_path):
    run = tmp_path / "run"
    verigrad.train(GUESS | {"run": {"folder": str(run), "steps": 5}}, task=guess(), quiet=True)
    other = verigrad.ProblemTask("guess", guess().problems[:9], guess().verifier)
    with pytest.raises(RunFolderError, match="changed since it started: the problems of the task"):
        verigrad.resume(run, task=other, quiet=True)


# Two runs in one folder


def test_a_run_that_is_going_on_is_not_resumed_by_another_process(tmp_path, complaint):
    process = start(tmp_path, "train", TOY, "--run.folder", "run", "--run.steps", 100_000)
    wait_for_lines(tmp_path / "run" / "metrics.jsonl", 5, process)
    line = complaint(tmp_path / "run")
    assert line.startswith(f"{tmp_path / 'run'} is being written by process {process.pid} on ")
    assert process.is_alive()
    process.kill()
    process.join()
    assert complaint(tmp_path / "run", "--run.seed", 1).startswith("run.seed may not change"), (
        "the lock went with the process"
    )


def test_a_folder_that_another_run_holds_is_not_started_in(tmp_path, capsys):
    with locked(tmp_path):
        assert train(TOY, "--run.folder", tmp_path) == 2
    assert f"{tmp_path} is being written by process " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]
