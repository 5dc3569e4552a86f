"""verigrad: policy gradients from rewards a program can verify.

    import verigrad
    result = verigrad.train(verigrad.load_config(Path("run.toml")))

Importing this package is cheap: torch is loaded by the first call that needs it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verigrad.config import Config, config_from, load_config
from verigrad.errors import ConfigError
from verigrad.tasks import FunctionTask, ProblemTask, Task
from verigrad.types import Problem, Status, Verdict

if TYPE_CHECKING:
    from verigrad.training.run import RunResult

__all__ = [
    "Config",
    "FunctionTask",
    "Problem",
    "ProblemTask",
    "Status",
    "Task",
    "Verdict",
    "load_config",
    "resume",
    "train",
]


def train(
    config: Config | Mapping[str, Any], *, task: Task | None = None, quiet: bool = False
) -> "RunResult":
    """Train from the beginning.

    Args:
        config: the run: a checked value, or a nested dict of the same keys as in TOML. Paths in a
            dict are relative to the working directory.
        task: a task of your own. Without it the configuration names one.
        quiet: show nothing.

    Returns:
        The run folder, and the held-out evaluations before and after.

    Raises:
        UserError: something that was given cannot be used; nothing has been written.
        TooManyFailuresError: more verdicts of a step failed than the configuration allows.
        BadNumbersError: a loss or gradient is not finite.
    """
    from verigrad.training import run

    if not isinstance(config, Config | Mapping):
        raise ConfigError(
            f"train was given {config!r:.80}, which is no configuration; expected a dict of keys, "
            "or a file that verigrad.load_config has read"
        )
    if not isinstance(config, Config):
        keys = dict(config)
        if task is not None:
            section = keys.get("task", {})
            keys["task"] = {"name": f"python:{task.name}"} | (
                {"name": section} if isinstance(section, str) else dict(section)
            )
        config = config_from(keys, source="configuration", base=Path.cwd())
    return run.train(config, task=task, quiet=quiet)


def resume(
    folder: str | Path,
    changes: Sequence[tuple[str, str]] = (),
    *,
    task: Task | None = None,
    accept_changed_files: bool = False,
    quiet: bool = False,
) -> "RunResult":
    """Go on with a run from its newest good checkpoint, as if it had never stopped.

    Args:
        folder: the run folder.
        changes: keys that may change, as text: ``[("run.steps", "40")]``.
        task: the task, for a run that was given one in Python.
        accept_changed_files: go on although a task, verifier or data file is another one now.
        quiet: show nothing.

    Raises:
        RunFolderError: the folder holds no run or another process writes there, no checkpoint can
            be used, or a file has changed.
        ConfigError: a key may not change.
        StorageError: a file of the run cannot be written.
    """
    from verigrad.training import resume as resuming

    return resuming.resume(
        Path(folder), changes, task=task, accept_changed_files=accept_changed_files, quiet=quiet
    )
