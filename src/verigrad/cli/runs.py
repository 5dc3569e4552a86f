"""``verigrad train``, ``plan`` and ``eval``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from verigrad.cli.app import app, write
from verigrad.cli.options import ConfigFile, overrides, with_key_options
from verigrad.config import load_config
from verigrad.errors import UserError


@app.command(sort_key=1)
@with_key_options()
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

        return go_on(resume, overrides(changes)).exit_code
    if config is None:
        raise UserError("train needs a CONFIG file, or --resume RUN to go on with a run")
    loaded = load_config(config, overrides(changes))
    from verigrad.training.run import train as start

    return start(loaded).exit_code


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
    """Print the greedy and sampled accuracy of a model, with intervals.

    Args:
        model_or_run: An alias, a folder, a hub id, or the folder of a run.
        config: The TOML file that describes the task and the evaluation.
        changes: Values for single keys, over those of the file.
    """
    loaded = load_config(config, overrides(changes))
    from verigrad.training.run import evaluate as measure

    return write(measure(model_or_run, loaded))
