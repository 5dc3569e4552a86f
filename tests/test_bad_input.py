"""What a person gets wrong: one clear line on stderr, exit code 2, and nothing half-written."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from running import TOY, snapshot, write_task, write_tiny_run

from verigrad.cli import main
from verigrad.engines import LocalEngine

TABLE_OF = 'model = "tabular"\ntask = {{name = "task.py:{}", held_out = 0}}\n'
LETTERS = "letters.py:letters"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A folder with a configuration, a task and a model that work."""
    return write_tiny_run(tmp_path_factory.mktemp("tiny")).parent


@pytest.fixture
def here(tiny, tmp_path, monkeypatch) -> Path:
    """A copy of it, which is the working directory."""
    folder = shutil.copytree(tiny, tmp_path / "here")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def complaint(here, capsys) -> Callable[..., str]:
    """Run a command that must be refused before it writes anything; return the line it says."""

    def complaint(*arguments: object) -> str:
        before = snapshot(here), sorted(path.name for path in here.iterdir())
        assert main([str(argument) for argument in arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("verigrad: error: ")
        assert captured.err.count("\n") == 1
        assert "Traceback" not in captured.err
        shutil.rmtree(here / "__pycache__", ignore_errors=True)
        assert (snapshot(here), sorted(path.name for path in here.iterdir())) == before
        return captured.err.removeprefix("verigrad: error: ").rstrip("\n")

    return complaint


# The configuration


@pytest.mark.parametrize("command", [["train"], ["plan"], ["eval", "model"]])
@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "bad.toml: there is no such file"),
        ("[run\nsteps = 3", "bad.toml: is not valid TOML: "),
        ("steps = 3", "bad.toml: steps is not a key; did you mean run.steps? (sections: "),
        ("[run]\nstepz = 3", "bad.toml: run.stepz is not a key; did you mean run.steps? ("),
        ("[samplng]\nproblems = 3", "bad.toml: [samplng] is not a section; did you mean [sampl"),
        ("[run]\nsteps = 0", "bad.toml: run.steps is 0; it must be a whole number of at least 1"),
        ("[run]\nsteps = 6.5", "bad.toml: run.steps is 6.5; it must be a whole number of at "),
        ("[optimizer]\nlearning_rate = nan", "bad.toml: optimizer.learning_rate is nan; it must"),
        ("[sampling]\ntemperature = 0", "bad.toml: sampling.temperature is 0; it must be a finite"),
        ("[verifier]\nmax_failures = 2", "bad.toml: verifier.max_failures is 2; it must be a fin"),
        ('model = "smolm2-135m"', 'bad.toml: model.name is "smolm2-135m"; did you mean "smollm2-'),
        ('model = "./missing"', 'bad.toml: model.name is "./missing", but there is no folder /'),
        ('task = "adition"', 'bad.toml: task.name is "adition"; did you mean "addition"? it must'),
        ('task = "missing.py:t"', 'bad.toml: task.name is "missing.py:t", but there is no file /'),
        ('algorithm = "grop"', 'bad.toml: algorithm.preset is "grop"; did you mean "grpo"? it '),
    ],
)
def test_a_mistake_in_the_file_names_the_file_and_the_key(content, line, command, here, complaint):
    if content is not None:
        lines = content.splitlines()
        base = ['model = "model"', f'task = "{LETTERS}"']
        # A key may be given once, and keys of the top come before the first table.
        kept = [text for text in base if not any(c.startswith(text[:5]) for c in lines)]
        (here / "bad.toml").write_text("\n".join([*kept, content]))
    assert complaint(*command, "bad.toml").startswith(line)


@pytest.mark.parametrize("algorithm", ["grpo", "dr_grpo", "rloo"])
def test_one_completion_per_problem_is_explained(algorithm, complaint):
    options = ["--sampling.completions", 1, "--algorithm", algorithm]
    assert complaint("train", "run.toml", *options).endswith(
        f"sampling.completions is 1, but the advantage of '{algorithm}' compares the completions "
        "of one problem with each other, so a single one never has a signal; set it to 2 or more "
        "(8 is usual)"
    )


# The model


def test_a_model_folder_without_a_tokenizer_is_named(here, complaint):
    for path in (here / "model").glob("tokenizer*"):
        path.unlink()
    assert complaint("train", "run.toml") == (
        f"{here}/model has no tokenizer (tokenizer.json), so no prompt can be turned into tokens; "
        "tokenizer.save_pretrained writes it"
    )


@pytest.mark.parametrize(
    ("missing", "line"),
    [
        ("config.json", "{here}/model has no config.json"),
        ("model.safetensors", "{here}/model has no weights (model.safetensors)"),
    ],
)
def test_a_model_folder_that_is_not_complete_is_named(missing, line, here, complaint):
    (here / "model" / missing).unlink()
    for command in (["train", "run.toml"], ["eval", "model", "run.toml"]):
        assert complaint(*command).startswith(line.format(here=here))


def test_a_hub_model_that_cannot_be_fetched_is_named(complaint):
    line = complaint("train", "run.toml", "--model", "nobody/no-such-model")
    assert line.startswith("model 'nobody/no-such-model' is no folder here, and the hub does not")


@pytest.fixture
def no_generation(monkeypatch) -> None:
    def generate(*arguments: object) -> None:
        raise AssertionError("completions were generated")

    monkeypatch.setattr(LocalEngine, "generate", generate)


def test_a_prompt_longer_than_the_model_allows_is_named_before_anything_is_generated(
    here, complaint, no_generation
):
    # With its template "Say 3." is 24 tokens.
    config = json.loads((here / "model" / "config.json").read_text())
    (here / "model" / "config.json").write_text(
        json.dumps(config | {"max_position_embeddings": 32})
    )
    text = (here / "letters.py").read_text()
    changed = text.replace('f"Say {n}."', '"Say 4, and no more." if n == 4 else f"Say {n}."')
    assert changed != text
    (here / "letters.py").write_text(changed)
    line = complaint("train", "run.toml")
    assert line == (
        "the prompt of problem 'say-4' has 38 tokens, and with sampling.max_new_tokens = 6 that is "
        "more than the 32 positions of the model; shorten the prompt or lower "
        "sampling.max_new_tokens"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("command", [["train"], ["eval", "model"]])
def test_a_device_that_is_not_there_is_named(command, complaint):
    line = complaint(*command, "run.toml", "--run.device", "cuda")
    assert line.startswith("run.device is 'cuda', which cannot be used here (")
    assert '"cpu" always can' in line


def test_a_table_on_a_gpu_is_refused(complaint):
    line = complaint("train", TOY, "--run.device", "cuda")
    assert line.startswith("run.device is 'cuda', but model = \"tabular\" is a table")


def test_a_table_stays_on_the_cpu_of_a_machine_with_a_gpu(here, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert main(["train", str(TOY), "--run.steps", "3", "--run.folder", "run"]) == 0
    environment = json.loads((here / "run" / "environment.json").read_text())
    assert environment["decisions"]["device"] == "cpu"


@pytest.mark.parametrize(
    "options",
    [{"pad": False}, {"template": False}, {"pad": False, "template": False}],
    ids=["no pad token", "no chat template", "neither"],
)
def test_a_tokenizer_without_pad_token_or_chat_template_works(options, here, capsys):
    from tiny import save_tiny_model

    save_tiny_model(here / "plain", **options)
    assert main(["train", "run.toml", "--model", "plain", "--run.steps", "2"]) == 0
    assert "2 steps in" in capsys.readouterr().out


@pytest.mark.parametrize("positions", [10**14, 2**63 - 1])
def test_a_table_larger_than_memory_is_refused(positions, complaint):
    line = complaint("train", TOY, "--sampling.max-new-tokens", positions)
    assert line.startswith(f"a table of 9 problems and sampling.max_new_tokens = {positions} pos")


# The task


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("other = 1", "{file} has no 'task'; it defines: Problem, ProblemTask, Status, Verdict, o"),
        ("task = 1", "{file}:task is a int without name, verifier, __len__, __getitem__; expected"),
        (
            "task = Missing",
            "{file} fails to run: NameError: name 'Missing' is not defined ({file}:2",
        ),
        ("def task(:", "{file} fails to run: line 2: "),
        ("import nowhere", "{file} fails to run: ModuleNotFoundError: No module named 'nowhere' ("),
        ("raise SystemExit(3)", "{file} fails to run: SystemExit: 3 ({file}:2)"),
        ("def task(): return 1 / 0", "{file}:task fails to make its task: ZeroDivisionError: div"),
        ("def task(): raise SystemExit", "{file}:task fails to make its task: SystemExit: "),
        ("def task(): return None", "{file}:task is a NoneType without name, verifier, "),
        ("def task(needed): return None", "{file}:task fails to make its task: TypeError: "),
        (
            "task = ProblemTask('t', [], len)",
            "{file} fails to run: TaskError: task 't' holds no problem; it needs at least one "
            "({file}:2)",
        ),
        (
            "def task():\n    return ProblemTask('t', [], len)",
            "{file}:task fails to make its task: TaskError: task 't' holds no problem; it needs at "
            "least one ({file}:3)",
        ),
        (
            "import json\ntask = json.loads('[')",
            "{file} fails to run: JSONDecodeError: Expecting value: line 1 column 2 (char 1) "
            "({file}:3)",
        ),
        (
            "task = ProblemTask('t', [Problem(id='a', prompt=p, reference=1) for p in 'xy'], len)",
            "{file} fails to run: TaskError: task 't': problems 0 and 1 have the same id 'a'",
        ),
        (
            "task = ProblemTask('t', [Problem(id='a', prompt=7, reference=1)], len)",
            "task 't': problem 'a' has the prompt 7",
        ),
        (
            "task = ProblemTask('t', [Problem(id='a', prompt=({'text': 'x'},), reference=1)], len)",
            "task 't': problem 'a' has the prompt ({'text': 'x'},)",
        ),
        (
            "task = ProblemTask('t', [Problem(id='a', prompt='\\ud800', reference=1)], len)",
            "task 't': the prompt of problem 'a' holds half of a character (a lone surrogate)",
        ),
        (
            "one = {'role': 'user', 'content': '\\udc00'}\n"
            "task = ProblemTask('t', [Problem(id='a', prompt=(one,), reference=1)], len)",
            "task 't': the prompt of problem 'a' holds half of a character (a lone surrogate)",
        ),
        (
            "task = ProblemTask('t', [{'id': 'a', 'prompt': 'x', 'reference': 1}], len)",
            "{file} fails to run: TaskError: task 't': item 0 is a dict; expected a verigrad.Pro",
        ),
        (
            "task = ProblemTask('t', (Problem(id=i, prompt=i, reference=1) for i in 'ab'), len)",
            "{file} fails to run: TaskError: task 't': its problems are a generator, which can be",
        ),
        (
            "class Task:\n"
            "    name, verifier = 't', len\n"
            "    def __len__(self): return 2\n"
            "    def __getitem__(self, index): return {'id': index}\n"
            "task = Task()",
            "task 't': item 0 is a dict",
        ),
    ],
)
@pytest.mark.parametrize("command", ["train", "plan"])
def test_a_mistake_in_a_task_file_is_one_line(command, code, line, here, complaint):
    file = write_task(here, code)
    (here / "table.toml").write_text(TABLE_OF.format("task"))
    assert complaint(command, "table.toml").startswith(line.replace("{file}", file))


def test_a_task_without_anything_to_hold_out_says_what_to_do(here, complaint):
    write_task(here, "task = ProblemTask('t', [Problem(id='a', prompt='a', reference=1)], len)")
    options = ["--task", "task.py:task", "--task.held-out", 0.5]
    line = complaint("train", "run.toml", *options)
    assert line.startswith("task 't' has 1 problems, and with task.held_out = 0.5 none is ")


def test_a_held_out_prompt_that_is_trained_on_under_another_content_is_refused(here, complaint):
    problems = [(n, text) for n in range(8) for text in (f"Add {n}.", f"add  {n}.")]
    lines = [f"Problem(id={t!r}, prompt={t!r}, reference={n}, content={t!r})" for n, t in problems]
    write_task(here, f"task = ProblemTask('t', [{', '.join(lines)}], len)")
    line = complaint("train", "run.toml", "--task", "task.py:task", "--task.held-out", 0.5)
    assert re.match(
        r"held-out problem 'add +\d\.' is trained on, as 'add +\d\.', which", line, re.I
    )
    assert "has the same prompt; accuracy on it would say nothing" in line


# The run folder, and what is evaluated


def test_a_folder_that_cannot_be_made_is_named(here, complaint):
    (here / "file").write_text("")
    assert complaint("train", TOY, "--run.folder", "file").startswith(
        f"run.folder {here}/file is a file"
    )
    assert complaint("train", TOY, "--run.folder", "file/run").startswith(
        f"the run folder {here}/file/run cannot be made: "
    )


@pytest.mark.parametrize(
    ("model", "config", "line"),
    [
        ("nothing", "run.toml", "model 'nothing' is neither an alias nor a folder that exists"),
        ("here", "run.toml", "{here}/here has no tokenizer"),
        ("model", TOY, "model holds no table that can be read, and the configuration has model = "),
        ("table", "run.toml", "{here}/table/final has no tokenizer"),
        ("half", TOY, "half has no final policy yet; finish it with: verigrad train --resume half"),
        ("table", "wide.toml", "{here}/table/final holds a table of shape (9, 1, 10), but this ta"),
    ],
)
def test_what_cannot_be_evaluated_is_named(model, config, line, here, complaint, capsys):
    (here / "here").mkdir()
    wide = TOY.read_text().replace("max_new_tokens = 1", "max_new_tokens = 2")
    (here / "wide.toml").write_text(wide)
    for name in ("table", "half"):
        assert main(["train", str(TOY), "--run.steps", "2", "--run.folder", name]) == 0
    shutil.rmtree(here / "half" / "final")
    capsys.readouterr()
    assert complaint("eval", model, config).startswith(line.format(here=here))


@pytest.mark.parametrize("command", ["train", "plan"])
def test_a_group_too_small_for_the_best_of_k_is_refused_before_a_model_is_loaded(
    command: str, complaint: Callable[..., str]
) -> None:
    line = complaint(command, TOY, "--algorithm", "pkpo", "--sampling.completions", "3")
    assert line.startswith("sampling.completions is 3, but algorithm.pass_k asks for the best of 4")


@pytest.mark.parametrize("key", ["verifier", "answer", "shots"])
def test_a_key_for_data_beside_a_task_that_is_none_is_named(key, complaint):
    line = complaint("plan", "run.toml", f"--data.{key}", "1" if key == "shots" else "exact")
    assert line.startswith(f"data.{key} is set, but the task '")
    assert line.endswith(
        "leave [data] out (verifier.name puts a verifier in the place of a task's)"
    )


def test_the_best_of_all_completions_has_no_centred_signal_and_is_refused(
    complaint: Callable[..., str],
) -> None:
    """One success among them is already pass@k = 1, so that no group could ever train."""
    few = ["--algorithm", "passk", "--sampling.completions"]
    assert complaint("plan", TOY, *few, "4").startswith(
        "sampling.completions is 4, and algorithm.pass_k too: with a single success the best of "
        "all is right already, so 'passk_analytic' has no signal in any group"
    )
    assert main(["plan", str(TOY), *few, "5"]) == 0


def test_leaving_out_groups_without_signal_takes_two_completions(
    complaint: Callable[..., str],
) -> None:
    alone = ["--algorithm", "reinforce_pp", "--sampling.completions", "1"]
    line = complaint("plan", TOY, *alone, "--algorithm.counts_no_signal", "false")
    assert line.startswith("sampling.completions is 1, and counts_no_signal is false: ")
    assert main(["plan", str(TOY), *alone]) == 0
