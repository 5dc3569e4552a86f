"""The run folder: a contract that resume, reports and people read.

config.toml       the resolved configuration
environment.json  versions, machine, decisions
metrics.jsonl     one line per step
rollouts.jsonl    one line per completion
findings.json     what is wrong, in words
checkpoints/      what a resume needs
final/            the trained policy
"""

import json
import platform
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

from verigrad.config import Config, to_toml
from verigrad.errors import RunFolderError
from verigrad.machine import cores
from verigrad.training.decisions import Decisions
from verigrad.training.records import write_json

PACKAGES = ("verigrad", "torch", "transformers", "tokenizers", "safetensors")


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
    def final(self) -> Path:
        """The trained policy."""
        return self.root / "final"

    def write_start(self, config: Config, decisions: Decisions, reasons: dict[str, str]) -> None:
        """Write the configuration and the environment."""
        partial = self.config.with_suffix(".partial")
        partial.write_text(to_toml(config), encoding="utf-8")
        partial.replace(self.config)
        write_json(self.environment, _environment(decisions, reasons))

    def read_decisions(self) -> tuple[Decisions, dict[str, str]]:
        """The decisions of the run, and their reasons.

        Raises:
            RunFolderError: the file that holds them is damaged.
        """
        try:
            content = json.loads(self.environment.read_text(encoding="utf-8"))
            return Decisions(**content["decisions"]), dict(content["reasons"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{self.environment} does not hold the decisions of a run "
                f"({type(error).__name__}: {error}), without which a resume would not be exact; "
                "put the file back as the run wrote it"
            ) from error


def check_free(folder: str | None) -> None:
    """Refuse an explicit folder that holds a run.

    Raises:
        RunFolderError: it does, or it is a file.
    """
    if folder is None:
        return
    root = Path(folder)
    if root.exists() and not root.is_dir():
        raise RunFolderError(f"run.folder {root} is a file; give the name of a folder")
    if RunFolder(root=root).config.exists():
        raise RunFolderError(
            f"run.folder {root} holds a run already; choose another folder, leave run.folder out "
            f"for the next free one, or continue that run: verigrad train --resume {root}"
        )


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


def _environment(decisions: Decisions, reasons: dict[str, str]) -> dict[str, Any]:
    return {
        "versions": {name: _version(name) for name in PACKAGES}
        | {"python": sys.version.split()[0]},
        "commit": _commit(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cores": cores(),
        "decisions": asdict(decisions),
        "reasons": reasons,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of verigrad's own checkout; None when it is installed from a wheel."""
    here = Path(__file__).resolve().parent
    try:
        shown = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return shown.stdout.strip()
