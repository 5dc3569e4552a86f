"""The command line: ``verigrad train``, ``plan``, ``eval`` and ``study``.

Every configuration key is an option, made from the schema's dataclasses. cyclopts splits the
arguments and writes the help; the configuration loader reads and checks the values. Whatever goes
wrong is one line on stderr, written in one place, and the exit code says what kind it was. An
error that nobody foresaw keeps its traceback, and Python's exit code 1.
"""

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import MISSING
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import App, CycloptsError, Group, Parameter, UnknownOptionError, UnusedCliTokensError

from verigrad.config import SHORTHAND, load_config
from verigrad.config.checks import expected, names_in, scalars_in, shown
from verigrad.config.keys import KEYS, SECTIONS, Key, key_docs, nearest_key
from verigrad.errors import UserError, VerigradError

EXIT_CODES = """Exit codes:
  0    fine
  1    a check found something
  2    the user's mistake: a file, a key, a value, a model
  3    more verdicts of one step failed than the configuration allows
  4    a loss, gradient or reward is not a finite number
  130  interrupted with Ctrl-C
  141  the reader of the output of plan or eval went away
  143  ended by SIGTERM"""

Number = TypeVar("Number", int, float)

INTERRUPTED = 130
READER_GONE = 141

ConfigFile = Annotated[Path, Parameter(name="CONFIG", help="The TOML file that describes the run.")]

app = App(
    name="verigrad",
    help="Train language models with policy gradients from rewards that a program can verify.",
    help_epilogue=EXIT_CODES,
    help_format="plaintext",
    version=lambda: _version(),
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: What follows ``verigrad``; by default the arguments of the process.
    """
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return int(app(tokens) or 0)
    except CycloptsError as error:
        return _fail(_explain(error), UserError.exit_code)
    except VerigradError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)


def _version() -> str:
    try:
        return version("verigrad")
    except PackageNotFoundError:
        return "not installed, running from its source"


def _fail(message: str, code: int) -> int:
    line = " ".join(part.strip() for part in message.splitlines())
    sys.stderr.write(f"verigrad: error: {line}\n")
    return code


def _print(text: str) -> int:
    """Write a result to stdout, where ``| head`` may have stopped reading."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more as it exits, and what is left must have somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    return 0


def _explain(error: CycloptsError) -> str:
    """Say in one line what is wrong with the arguments."""
    help_command = " ".join(("verigrad", *(error.command_chain or ()), "--help"))
    if isinstance(error, UnknownOptionError):
        options = [name for argument in error.argument_collection for name in argument.names]
        found, _, _ = (error.token.keyword or error.token.value).partition("=")
        return f"{_unknown_option(found, options)} (all of them: {help_command})"
    if isinstance(error, UnusedCliTokensError):
        extra = " ".join(error.unused_tokens or ())
        return f"{shown(extra)} is one argument too many; see {help_command}"
    text = str(error)
    return text[:1].lower() + text[1:]


def _unknown_option(found: str, options: Sequence[str]) -> str:
    name = _path(found)
    if name in SECTIONS:
        keys = ", ".join(_option(path) for path in KEYS if path.startswith(f"{name}."))
        return f"{found} is a section; name one of its keys: {keys}"
    nearest = nearest_key(name, [_path(option) for option in options])
    hint = f"; did you mean {_option(nearest)}?" if nearest else ""
    return f"{found} is not an option{hint}"


def _option(path: str) -> str:
    """The option of a key: ``run.max_tokens`` is ``--run.max-tokens``."""
    return f"--{path.replace('_', '-')}"


def _path(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


@cache
def _key_options() -> list[inspect.Parameter]:
    """One keyword parameter per configuration key, for a command's signature."""
    options = []
    for section, kind in SECTIONS.items():
        group = Group.create_ordered(section, help=inspect.getdoc(kind) or "")
        docs = key_docs(section)
        options += [
            _key_option(key, docs[key.name], group)
            for key in KEYS.values()
            if key.section == section
        ]
    return options


def _key_option(key: Key, doc: str, group: Group) -> inspect.Parameter:
    short = [_option(key.section)] if SHORTHAND.get(key.section) == key.name else []
    chosen_or_number = names_in(key.hint) or scalars_in(key.hint) != {str}
    accepted = f" ({expected(key.hint)})" if chosen_or_number else ""
    parameter = Parameter(
        # The long name first: cyclopts would take "--task.name" as a part of "--task".
        name=[_option(key.path), *short],
        help=" ".join(doc.replace("``", "").split()) + accepted,
        metavar="VALUE",
        group=group,
        show_default=False if key.default in (None, MISSING) else str(key.default),
    )
    return inspect.Parameter(
        # A Python name has no dots; no name in the schema has two underscores.
        key.path.replace(".", "__"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, parameter],
    )


def _with_key_options(command: Callable[..., int]) -> Callable[..., int]:
    """Put one option per configuration key in the place of a command's ``**changes``."""
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    new = signature.replace(parameters=[*own, *_key_options()])
    command.__signature__ = new  # type: ignore[attr-defined]
    return command


def _overrides(changes: dict[str, str]) -> list[tuple[str, str]]:
    """The options that were given, as key paths and texts."""
    return [(name.replace("__", "."), text) for name, text in changes.items()]


@app.command(sort_key=1)
@_with_key_options
def train(
    config: ConfigFile | None = None,
    /,
    *,
    resume: Annotated[Path | None, Parameter(metavar="RUN")] = None,
    **changes: str,
) -> int:
    """Train a model as CONFIG says, or go on with the run in a folder.

    verigrad train examples/toy.toml --run.steps 100
    verigrad train --resume runs/toy-1

    Args:
        config: The TOML file that describes the run.
        resume: The folder of a run to go on with, in the place of CONFIG.
        changes: Values for single keys, over those of the file.
    """
    if resume is not None and config is not None:
        raise UserError(
            f"train has both CONFIG ({config}) and --resume ({resume}); a run's folder holds its "
            "own configuration, so give one of them, and changes as --section.key value"
        )
    if resume is not None:
        from verigrad.training.run import resume as go_on

        return go_on(resume, _overrides(changes)).exit_code
    if config is None:
        raise UserError("train needs a CONFIG file, or --resume RUN to go on with a run")
    loaded = load_config(config, _overrides(changes))
    from verigrad.training.run import train as start

    return start(loaded).exit_code


@app.command(sort_key=2)
@_with_key_options
def plan(config: ConfigFile, /, **changes: str) -> int:
    """Print what a run would do and need, without loading a model.

    Args:
        config: The TOML file that describes the run.
        changes: Values for single keys, over those of the file.
    """
    loaded = load_config(config, _overrides(changes))
    from verigrad.training.plan import plan as describe

    return _print(describe(loaded))


@app.command(name="eval", sort_key=3)
@_with_key_options
def evaluate(
    model_or_run: Annotated[str, Parameter(name="MODEL_OR_RUN")],
    config: ConfigFile,
    /,
    **changes: str,
) -> int:
    """Print the greedy and sampled accuracy of a model, with intervals.

    Args:
        model_or_run: An alias, a folder, a hub id, or the folder of a run.
        config: The TOML file that describes the task and the evaluation.
        changes: Values for single keys, over those of the file.
    """
    loaded = load_config(config, _overrides(changes))
    from verigrad.training.run import evaluate as measure

    return _print(measure(model_or_run, loaded))


@app.command(sort_key=4)
def study(
    *,
    algorithms: str = "grpo,dr_grpo,rloo,maxrl",
    completions: str = "8",
    learning_rates: str = "0.5",
    difficulties: str = "0",
    seeds: int = 100,
    steps: int = 1500,
    out: Path | None = None,
) -> int:
    """Train the toy table with many seeds at once, and compare estimators of its gradient.

    verigrad study --algorithms grpo,rloo --completions 2,8 --seeds 100

    Args:
        algorithms: Presets, separated by commas.
        completions: Completions per problem, K, separated by commas.
        learning_rates: Learning rates of Adam, separated by commas.
        difficulties: What is added to the wrong answers' logits at the start, separated by commas.
        seeds: How many runs of each, seeds 0, 1, 2 and so on.
        steps: Steps of each run.
        out: A folder for learning.csv, gradients.csv and the figure learning.svg.
    """
    from verigrad.study import settings
    from verigrad.study import study as compare

    if seeds < 1 or steps < 1:
        raise UserError(f"study: --seeds is {seeds} and --steps is {steps}; both must be 1 or more")
    chosen = settings(
        algorithms.split(","),
        _numbers("--completions", completions, int, 1),
        _numbers("--learning-rates", learning_rates, float, 0.0),
        _numbers("--difficulties", difficulties, float, 0.0),
    )
    if not chosen:
        raise UserError("study: no preset is left that allows so few --completions")
    return _print(compare(chosen, seeds=range(seeds), steps=steps, folder=out))


def _numbers(option: str, text: str, kind: Callable[[str], Number], least: Number) -> list[Number]:
    """Numbers separated by commas."""
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(least <= number < float("inf") for number in numbers):
        raise UserError(
            f"study: {option} is {shown(text)}; it must be numbers of at least {least}, separated "
            "by commas"
        )
    return numbers
