"""``verigrad train``, ``plan`` and ``eval``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verigrad.cli.app import app, write
from verigrad.cli.options import ConfigFile, overrides, with_key_options
from verigrad.config import Config, load_config
from verigrad.errors import UserError, VerigradError


@app.command(sort_key=1)
@with_key_options()
def train(
    config: ConfigFile | None = None,
    /,
    *,
    resume: Annotated[Path | None, Parameter(metavar="RUN")] = None,
    accept_changed_files: Annotated[bool, Parameter(negative=())] = False,
    check_determinism: Annotated[int | None, Parameter(metavar="N")] = None,
    **changes: str,
) -> int:
    """Train a model as CONFIG says, or go on with the run in a folder.

    verigrad train examples/toy.toml --run.steps 100
    verigrad train --resume runs/toy-1
    verigrad train examples/toy.toml --check-determinism 20

    Args:
        config: The TOML file that describes the run.
        resume: The folder of a run to go on with, in the place of CONFIG.
        accept_changed_files: With --resume: go on although a task, verifier or data file is
            another one now.
        check_determinism: Train nothing to keep, but make the first N steps twice and compare them.
        changes: Values for single keys, over those of the file.
    """
    if resume is not None and config is not None:
        raise UserError(
            f"train has both CONFIG ({config}) and --resume ({resume}); a run's folder holds its "
            "own configuration, so give one of them, and changes as --section.key value"
        )
    if resume is not None and check_determinism is not None:
        raise UserError(
            "train has both --resume and --check-determinism, which starts from the beginning; "
            "with the latter give the CONFIG of the run, its config.toml"
        )
    if resume is not None:
        from verigrad.training.resume import resume as go_on

        done = go_on(resume, overrides(changes), accept_changed_files=accept_changed_files)
        return done.exit_code
    if accept_changed_files:
        raise UserError("--accept-changed-files goes with --resume RUN; a new run has no old files")
    if config is None:
        raise UserError("train needs a CONFIG file, or --resume RUN to go on with a run")
    loaded = load_config(config, overrides(changes))
    if check_determinism is not None:
        return _check_determinism(loaded, check_determinism)
    from verigrad.training.run import train as start

    return start(loaded).exit_code


def _check_determinism(config: Config, steps: int) -> int:
    """Say whether two runs are the same, and how they were run; 1 when they differ."""
    if steps < 1:
        raise UserError(f"train: --check-determinism is {steps}; it must be a number of steps")
    from verigrad.training.determinism import check_determinism as check

    found = check(config, steps)
    if found.difference is None:
        return write(f"the same: {found.described}")
    write(f"NOT the same: {found.described}\nfirst difference: {found.difference}")
    return VerigradError.exit_code


@app.command(sort_key=2)
@with_key_options()
def plan(config: ConfigFile, /, **changes: str) -> int:
    """Print what a run would do and need, without loading a model.

    Args:
        config: The TOML file that describes the run.
        changes: Values for single keys, over those of the file.
    """
    loaded = load_config(config, overrides(changes))
    from verigrad.training.plan import plan as describe

    return write(describe(loaded))


@app.command(name="eval", sort_key=3)
@with_key_options()
def evaluate(
    model_or_run: Annotated[str, Parameter(name="MODEL_OR_RUN")],
    config: ConfigFile,
    /,
    **changes: str,
) -> int:
    """Print the greedy and sampled accuracy of a model, with intervals, and pass@k.

    Args:
        model_or_run: An alias, a folder, a hub id, or the folder of a run.
        config: The TOML file that describes the task and the evaluation.
        changes: Values for single keys, over those of the file.
    """
    loaded = load_config(config, overrides(changes))
    from verigrad.training.run import evaluate as measure

    return write(measure(model_or_run, loaded))
