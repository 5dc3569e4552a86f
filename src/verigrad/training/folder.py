"""The run folder: a contract that resume, reports and people read.

config.toml       the resolved configuration
environment.json  versions, machine, decisions, inputs
run.lock          held by the process that writes here
metrics.jsonl     one line per step
rollouts.jsonl    one line per completion
findings.json     what is wrong, in words
checkpoints/      what a resume needs
bad-updates/      what was skipped because it was not finite, if anything was
final/            the trained policy
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from verigrad.config import Config, to_toml
from verigrad.errors import RunFolderError
from verigrad.training.decisions import Decisions
from verigrad.training.disk import write_json, write_text


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """Where the files of a run are."""

    root: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.root / "config.toml"

    @property
    def environment(self) -> Path:
        """Versions, machine and decisions."""
        return self.root / "environment.json"

    @property
    def metrics(self) -> Path:
        """One line per step."""
        return self.root / "metrics.jsonl"

    @property
    def rollouts(self) -> Path:
        """One line per completion."""
        return self.root / "rollouts.jsonl"

    @property
    def findings(self) -> Path:
        """What is wrong, in words."""
        return self.root / "findings.json"

    @property
    def checkpoints(self) -> Path:
        """What a resume needs."""
        return self.root / "checkpoints"

    @property
    def bad_updates(self) -> Path:
        """What was skipped because it was not finite, for a replay; there only if something was."""
        return self.root / "bad-updates"

    @property
    def final(self) -> Path:
        """The trained policy."""
        return self.root / "final"

    def write_start(self, config: Config, environment: Mapping[str, Any]) -> None:
        """Write the configuration and the environment.

        Raises:
            StorageError: one of them cannot be written.
        """
        # The configuration makes it the folder of a run, so it is last: a crash leaves no half run.
        write_json(self.environment, environment)
        write_text(self.config, to_toml(config))

    def read_environment(self) -> dict[str, Any]:
        """The environment that the run was started in.

        Raises:
            RunFolderError: the file that holds it is damaged.
        """
        try:
            content = json.loads(self.environment.read_text(encoding="utf-8"))
            Decisions(**content["decisions"])
            return dict(content) | {
                "versions": dict(content["versions"]),
                "inputs": dict(content["inputs"]),
                "resumes": list(content.get("resumes", [])),
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{self.environment} does not hold the decisions of a run "
                f"({type(error).__name__}: {error}), without which a resume would not be exact; "
                "put the file back as the run wrote it"
            ) from error

    def read_decisions(self) -> Decisions:
        """What the run measured and chose.

        Raises:
            RunFolderError: the file that holds it is damaged.
        """
        return Decisions(**self.read_environment()["decisions"])


def existing_run(folder: Path) -> RunFolder:
    """The run in a folder, however it is named.

    Raises:
        RunFolderError: it holds none.
    """
    run = RunFolder(root=Path(os.path.realpath(folder)))
    needed = (run.config, run.environment)
    # Not Path.exists, which raises where a name is too long.
    missing = [path.name for path in needed if not os.path.exists(path)]
    if missing == [run.environment.name]:
        raise RunFolderError(
            f"{folder} holds a run, but its environment.json is missing, without which a resume "
            "would not be exact; put the file back as the run wrote it"
        )
    if missing:
        raise RunFolderError(f"{folder} holds no run: it has no {' and '.join(missing)}")
    return run


def check_free(folder: str | None) -> None:
    """Refuse an explicit folder that holds a run, or what is left of one.

    Raises:
        RunFolderError: it does, or it is a file.
    """
    if folder is None:
        return
    root = Path(folder)
    if os.path.exists(root) and not root.is_dir():
        raise RunFolderError(f"run.folder {root} is a file; give the name of a folder")
    run = RunFolder(root=root)
    if os.path.exists(run.config):
        raise RunFolderError(
            f"run.folder {root} holds a run already; choose another folder, leave run.folder out "
            f"for the next free one, or continue that run: verigrad train --resume {root}"
        )
    parts = (run.metrics, run.rollouts, run.checkpoints, run.bad_updates, run.final)
    left = [path.name for path in parts if _holds_something(path)]
    if left:
        raise RunFolderError(
            f"run.folder {root} holds {', '.join(left)} of another run, which a new one would add "
            "to; choose another folder, or move them away"
        )


def _holds_something(path: Path) -> bool:
    """Whether a path is a folder with entries, or a file with content."""
    if os.path.isdir(path):
        return any(path.iterdir())
    return os.path.exists(path) and path.stat().st_size > 0


def make_folder(folder: str | None, task: str) -> RunFolder:
    """Make the folder of a new run: the explicit one, or the next free ``runs/NAME-N``.

    Raises:
        RunFolderError: it cannot be made.
    """
    try:
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            return RunFolder(root=Path(folder))
        name = re.sub(r"[^\w.-]+", "-", task).strip("-") or "run"
        Path("runs").mkdir(exist_ok=True)
        return RunFolder(root=_next_free(Path("runs").resolve(), name))
    except OSError as error:
        where = folder or "runs/"
        raise RunFolderError(f"the run folder {where} cannot be made: {error.strerror}") from error


def _next_free(parent: Path, name: str) -> Path:
    for number in count(1):
        root = parent / f"{name}-{number}"
        try:
            root.mkdir()
        except FileExistsError:
            continue
        return root
    raise AssertionError("there is always a next number")
