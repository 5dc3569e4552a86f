"""The command: what reaches the library, what a person reads, and the exit code."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from rich.console import Console

from verigrad.cli import app, main
from verigrad.config import Config, load_config
from verigrad.config.keys import KEYS, key_docs
from verigrad.errors import BadNumbersError, TooManyFailuresError

TOY = str(Path(__file__).parent.parent / "examples/toy.toml")


class Trainer(ModuleType):
    """Stands in for the training module: keeps what it was asked, trains nothing."""

    def __init__(self) -> None:
        super().__init__("verigrad.training.run")
        self.asked: list[object] = []
        self.exit_code = 0
        self.trouble: BaseException | None = None

    def train(self, config: Config) -> SimpleNamespace:
        return self._answer(config)

    def resume(
        self, folder: Path, changes: list[tuple[str, str]], *, accept_changed_files: bool
    ) -> SimpleNamespace:
        return self._answer((folder, changes, accept_changed_files))

    def evaluate(self, model_or_run: str, config: Config) -> str:
        self._answer((model_or_run, config))
        return "greedy 0.75"

    def _answer(self, asked: object) -> SimpleNamespace:
        self.asked.append(asked)
        if self.trouble is not None:
            raise self.trouble
        return SimpleNamespace(exit_code=self.exit_code)


@pytest.fixture
def trainer(monkeypatch) -> Trainer:
    module = Trainer()
    for name in ("run", "resume"):
        monkeypatch.setitem(sys.modules, f"verigrad.training.{name}", module)
    return module


@pytest.fixture
def complaint(capsys) -> Callable[..., str]:
    """Run a command that must end with exit code 2 and one line on stderr; return that line."""

    def complaint(*arguments: str) -> str:
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("verigrad: error: ")
        assert captured.err.count("\n") == 1
        return captured.err.removeprefix("verigrad: error: ").rstrip("\n")

    return complaint


# What reaches the library


def test_train_gets_the_configuration_of_the_file(trainer):
    assert main(["train", TOY]) == 0
    assert trainer.asked == [load_config(Path(TOY))]


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (["--run.steps", "30"], ("run.steps", "30")),
        (["--run.steps=30"], ("run.steps", "30")),
        (["--sampling.max-new-tokens", "5"], ("sampling.max_new_tokens", "5")),
        (["--sampling.max_new_tokens=5"], ("sampling.max_new_tokens", "5")),
        (["--algorithm", "rloo"], ("algorithm", "rloo")),
        (["--algorithm.preset", "rloo"], ("algorithm", "rloo")),
        (["--task", "addition"], ("task", "addition")),
        (["--model", "smollm2-135m"], ("model", "smollm2-135m")),
    ],
)
def test_an_option_reaches_the_configuration(options, change, trainer):
    main(["train", TOY, *options])
    main(["train", *options, TOY])
    assert trainer.asked == [load_config(Path(TOY), [change])] * 2


def test_several_options_hold_together(trainer):
    main(["train", TOY, "--algorithm.clip-high", "0.3", "--algorithm", "dr_grpo", "--run.seed=7"])
    (config,) = trainer.asked
    assert (config.algorithm.preset, config.algorithm.clip_high) == ("dr_grpo", 0.3)
    assert config.run.seed == 7


def test_resume_gets_the_folder_and_the_changes_as_text(trainer):
    assert main(["train", "--resume", "runs/toy-1", "--run.steps", "30"]) == 0
    assert main(["train", "--resume", "runs/toy-1", "--accept-changed-files"]) == 0
    assert trainer.asked == [
        (Path("runs/toy-1"), [("run.steps", "30")], False),
        (Path("runs/toy-1"), [], True),
    ]


def test_eval_prints_what_was_measured(trainer, capsys):
    assert main(["eval", "runs/toy-1", TOY, "--evaluation.problems", "9"]) == 0
    config = load_config(Path(TOY), [("evaluation.problems", "9")])
    assert trainer.asked == [("runs/toy-1", config)]
    assert capsys.readouterr().out == "greedy 0.75\n"


# Exit codes


@pytest.mark.parametrize("code", [0, 130, 143])
def test_the_exit_code_of_a_run_is_the_one_of_the_command(code, trainer):
    trainer.exit_code = code
    assert main(["train", TOY]) == code
    assert main(["train", "--resume", "runs/toy-1"]) == code


@pytest.mark.parametrize(
    ("trouble", "code", "line"),
    [
        (
            TooManyFailuresError("5 of 8 failed\nthe first: boom"),
            3,
            "5 of 8 failed the first: boom",
        ),
        (BadNumbersError("the loss is nan"), 4, "the loss is nan"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_one_line(trouble, code, line, trainer, capsys):
    trainer.trouble = trouble
    assert main(["train", TOY]) == code
    assert capsys.readouterr().err == f"verigrad: error: {line}\n"


def test_an_error_that_nobody_foresaw_keeps_its_traceback(trainer):
    trainer.trouble = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main(["train", TOY])


# The user's mistakes


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train"], "train needs a CONFIG file, or --resume RUN to go on with a run"),
        (
            ["train", "addition"],
            "addition: there is no such file; expected the TOML file of a run, such as the one "
            "that `verigrad init` writes",
        ),
        (
            ["train", TOY, "more.toml"],
            '"more.toml" is one argument too many; see verigrad train --help',
        ),
        (
            ["train", TOY, "--run.stepz", "3"],
            "--run.stepz is not an option; did you mean --run.steps? "
            "(all of them: verigrad train --help)",
        ),
        (
            ["train", "--stepz=3", TOY],
            "--stepz is not an option; did you mean --run.steps? "
            "(all of them: verigrad train --help)",
        ),
        (
            ["plan", TOY, "--samplng.completions", "3"],
            "--samplng.completions is not an option; did you mean --sampling.completions? "
            "(all of them: verigrad plan --help)",
        ),
        (
            ["train", "--resum", "runs/toy-1"],
            "--resum is not an option; did you mean --resume? (all of them: verigrad train --help)",
        ),
        (
            ["train", TOY, "--checkpoint", "3"],
            "--checkpoint is a section; name one of its keys: "
            "--checkpoint.every, --checkpoint.keep, --checkpoint.best "
            "(all of them: verigrad train --help)",
        ),
        (["train", TOY, "-q"], "-q is not an option (all of them: verigrad train --help)"),
        (
            ["train", TOY, "--run.steps", "6.5"],
            'command line: run.steps is "6.5"; it must be a whole number of at least 1',
        ),
        (
            ["plan", TOY, "--run.seed", "-1"],
            "command line: run.seed is -1; it must be a whole number of at least 0",
        ),
        (
            ["train", TOY, "--optimizer.learning-rate=-inf"],
            "command line: optimizer.learning_rate is -inf; it must be a finite number above 0",
        ),
        (
            ["train", TOY, "--run.steps="],
            'command line: run.steps is ""; it must be a whole number of at least 1',
        ),
        (
            ["train", TOY, "--run.steps"],
            'command "train" parameter --run.steps requires an argument.',
        ),
        (
            ["train", TOY, "--run.steps", "--run.seed", "3"],
            'command "train" parameter --run.steps requires an argument.',
        ),
        (
            ["train", TOY, "--run.seed", "1", "--run.seed", "2"],
            "parameter --run.seed specified multiple times.",
        ),
        (["plan"], 'command "plan" parameter CONFIG requires an argument.'),
        (["eval", "runs/toy-1"], 'command "eval" parameter CONFIG requires an argument.'),
        (
            ["trian", TOY],
            'unknown command "trian". Did you mean "train"? '
            "Available commands: init, replay, train, plan, eval, study, tasks, verify.",
        ),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line_that_says_what_to_do(arguments, line, complaint):
    assert complaint(*arguments) == line


def test_a_file_and_a_run_to_resume_are_one_too_many(complaint):
    assert complaint("train", "a.toml", "--resume", "runs/a").startswith(
        "train has both CONFIG (a.toml) and --resume (runs/a); "
    )


def test_a_bad_file_is_refused_before_anything_is_written(tmp_path, monkeypatch, complaint):
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text('task = "toy"\nmodel = "tabular"\n[run]\nstepz = 3')
    assert complaint("train", "bad.toml").startswith(
        "bad.toml: run.stepz is not a key; did you mean run.steps? (keys of [run]: folder, "
    )
    assert [path.name for path in tmp_path.iterdir()] == ["bad.toml"]


# Help


@pytest.fixture
def help_text(monkeypatch, capsys) -> Callable[[str], str]:
    """The help of a command on a screen so wide that nothing wraps."""
    # The application keeps the console it was first used with, and that one's width.
    monkeypatch.setattr(app, "_console", Console(width=400))

    def help_text(command: str) -> str:
        assert main([command, "--help"]) == 0
        return capsys.readouterr().out

    return help_text


@pytest.mark.parametrize("command", ["train", "plan", "eval"])
def test_help_lists_every_key_with_its_docstring_and_default(command, help_text):
    text = help_text(command)
    for key in KEYS.values():
        option = f" --{key.path.replace('_', '-')} "
        (line,) = [line for line in text.splitlines() if option in line and " VALUE " in line]
        doc = " ".join(key_docs(key.section)[key.name].replace("``", "").split())
        assert doc in line
        if isinstance(key.default, int | float | str):
            assert f"[default: {key.default}]" in line


def test_help_says_what_a_key_accepts(help_text):
    assert (
        '(a whole number of at least 1 and at most 16384, or "auto") [default: auto]'
        in help_text("train")
    )


def test_help_ends_with_the_exit_codes(help_text):
    table = help_text("train").partition("Exit codes:\n")[2].splitlines()
    assert [line.split()[0] for line in table] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "130",
        "141",
        "143",
    ]


def test_help_needs_neither_torch_nor_transformers():
    code = (
        "import sys\n"
        "from verigrad.cli import main\n"
        "main(['--help']), main(['train', '--help'])\n"
        "print(sorted({'torch', 'transformers', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")


# As a process


def test_the_module_runs_as_the_command():
    command = [sys.executable, "-m", "verigrad", "train", "no.toml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "verigrad: error: no.toml: there is no such file; expected the TOML file of a run, such as "
        "the one that `verigrad init` writes\n"
    )


def test_a_reader_that_left_is_no_traceback():
    code = (
        "import sys, types\n"
        "from verigrad.cli import main\n"
        "module = types.ModuleType('verigrad.training.plan')\n"
        "module.plan = lambda config: 'a long plan'\n"
        "sys.modules['verigrad.training.plan'] = module\n"
        f"sys.exit(main(['plan', {TOY!r}]))"
    )
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("train no.toml 2> /dev/full", 2, ""),
        ("train no.toml 2>&-", 2, ""),
        ("tasks > /dev/full", 5, "verigrad: error: the result cannot be written: No space left"),
        ("tasks >&-", 141, ""),
    ],
)
def test_an_output_that_takes_nothing_changes_no_exit_code(redirected, code, said):
    command = f"{shlex.quote(sys.executable)} -m verigrad {redirected}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert "Traceback" not in done.stderr
