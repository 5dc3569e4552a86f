"""Checkpoints: written beside their name, flushed to disk, renamed when complete.

The manifest is written last. It holds the size and SHA-256 of each file, the configuration that
the checkpoint belongs to, and the held-out accuracy of its step.
"""

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from verigrad.errors import RunFolderError
from verigrad.flushing import flush, flush_folder
from verigrad.hashing import file_sha256
from verigrad.training.disk import remove, writing
from verigrad.training.state import TrainerState

POLICY = "policy.safetensors"
OPTIMIZER = "optimizer.safetensors"
REFERENCE = "reference.safetensors"
STATE = "state.json"
MANIFEST = "manifest.json"
FILES = (POLICY, OPTIMIZER, REFERENCE, STATE)

FORMAT = 1
NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A state at the end of a step: what one checkpoint holds."""

    step: int

    tensors: Mapping[str, dict[str, Tensor]]
    """By the name of the file they go to."""

    plain: str
    """The rest, as JSON text."""

    score: float | None
    """Held-out accuracy, where the step was evaluated."""

    configuration: Mapping[str, Any]
    """The keys that a resume may not change."""

    @property
    def bytes(self) -> int:
        """What the tensors take."""
        return sum(v.nbytes for values in self.tensors.values() for v in values.values())

    def copied(self) -> "Snapshot":
        """The same in memory of its own, which training does not change."""
        tensors = {
            file: {name: value.detach().to("cpu", copy=True) for name, value in values.items()}
            for file, values in self.tensors.items()
        }
        return Snapshot(**{**self.__dict__, "tensors": tensors})


def snapshot(state: TrainerState, configuration: Mapping[str, Any]) -> Snapshot:
    """The state as it is now; its tensors are those that training goes on to change."""
    return Snapshot(
        step=state.step,
        tensors={
            POLICY: state.policy_tensors(),
            OPTIMIZER: state.optimizer_tensors(),
            REFERENCE: state.reference_tensors(),
        },
        plain=json.dumps(state.plain(), allow_nan=False),
        score=state.recent[-1]["eval/accuracy"] if state.recent else None,
        configuration=configuration,
    )


def write_checkpoint(root: Path, taken: Snapshot, *, keep: int, best: bool) -> Path:
    """Write ``step-NNNNNN``, then remove the checkpoints that are no longer kept.

    Args:
        root: the run's folder of checkpoints; the folder above it must be there.
        taken: what to write.
        keep: how many of the newest to keep, at least 1.
        best: whether to keep the one with the best held-out accuracy too; of equals the newest.

    Returns:
        The checkpoint's folder. One that exists for this step already is left as it is.

    Raises:
        StorageError: it cannot be written; those before it are as they were.
    """
    final = root / _name(taken.step)
    with writing(final):
        root.mkdir(exist_ok=True)
        try:
            if not final.exists():
                _write(final.with_name(final.name + ".partial"), taken).rename(final)
                flush(root)
        finally:
            _remove_partial(root)
        _prune(root, keep, best)
    return final


def checkpoints(root: Path) -> list[Path]:
    """The checkpoints of a run, oldest first; damaged ones are among them."""
    found = [(path, NAME.fullmatch(path.name)) for path in root.glob("step-*")]
    numbered = [(int(match[1]), path) for path, match in found if match]
    return [path for _, path in sorted(numbered)]


def problem_with(folder: Path, configuration: Mapping[str, Any]) -> str | None:
    """Why a checkpoint cannot be used, in words; None when it is whole and belongs to the run.

    Args:
        folder: the checkpoint.
        configuration: the keys of this run that a resume may not change.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        files, theirs = manifest["files"], dict(manifest["configuration"])
        step, name = manifest["step"], _name(manifest["step"])
        wrong = [file for file in FILES if not _is_whole(folder / file, files[file])]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST} does not describe its files ({type(error).__name__}: {error})"
    if folder.name != name:
        return f"it is of step {step}, so another one was copied or moved to its name"
    if wrong:
        return f"{', '.join(wrong)}: not what {MANIFEST} says, so cut, altered or missing"
    other = [key for key in theirs if key in configuration and theirs[key] != configuration[key]]
    if other:
        key = other[0]
        return (
            f"it is of another configuration: {key} was {json.dumps(theirs[key])} and is "
            f"{json.dumps(configuration[key])}"
        )
    return None


def load_checkpoint(folder: Path, state: TrainerState) -> None:
    """Take over a checkpoint, in place.

    Raises:
        RunFolderError: it is not one of this policy; the state is then of no use.
    """
    try:
        plain = json.loads((folder / STATE).read_text(encoding="utf-8"))
        policy, optimizer, reference = (
            load_file(folder / name) for name in (POLICY, OPTIMIZER, REFERENCE)
        )
        state.restore(policy, optimizer, reference, plain)
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise RunFolderError(f"{type(error).__name__}: {error}") from error


def load_newest(
    root: Path, state: TrainerState, configuration: Mapping[str, Any]
) -> dict[Path, str]:
    """Take over the newest checkpoint that can be used, if there is any checkpoint.

    Returns:
        The newer ones that cannot be used, and why.

    Raises:
        RunFolderError: there are some, and none can be used.
    """
    unusable: dict[Path, str] = {}
    for folder in reversed(checkpoints(root)):
        problem = problem_with(folder, configuration)
        if problem is None:
            try:
                load_checkpoint(folder, state)
            except RunFolderError as error:
                problem = str(error)
            else:
                return unusable
        unusable[folder] = problem
    if unusable:
        reasons = "; ".join(f"{folder.name}: {problem}" for folder, problem in unusable.items())
        raise RunFolderError(
            f"no checkpoint in {root} can be used ({reasons}); put one back as the run wrote it, "
            "or remove them all to start this run again from its first step"
        )
    return unusable


def set_aside(folder: Path) -> Path:
    """Move a checkpoint that cannot be used out of the way of the one that will be made again."""
    aside = folder.with_name(folder.name + ".set-aside")
    with writing(aside):
        with suppress(FileNotFoundError):
            remove(aside)
        folder.rename(aside)
    return aside


def _write(partial: Path, taken: Snapshot) -> Path:
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name, tensors in taken.tensors.items():
        save_file(tensors, partial / name)
    (partial / STATE).write_text(taken.plain, encoding="utf-8")
    flush_folder(partial)
    manifest = {
        "format": FORMAT,
        "step": taken.step,
        "score": taken.score,
        "files": {name: _description(partial / name) for name in FILES},
        "configuration": dict(taken.configuration),
    }
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    flush(partial / MANIFEST)
    flush(partial)
    return partial


def _name(step: int) -> str:
    return f"step-{step:06d}"


def _description(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def _is_whole(path: Path, description: Mapping[str, Any]) -> bool:
    """Whether a file is as the manifest says; its size is looked at first."""
    if not path.is_file() or path.stat().st_size != description["bytes"]:
        return False
    return bool(_description(path)["sha256"] == description["sha256"])


def _prune(root: Path, keep: int, best: bool) -> None:
    saved = checkpoints(root)
    kept = saved[-keep:]
    scored = [(score, path) for path in saved if (score := _score(path)) is not None]
    if best and scored:
        highest = max(score for score, _ in scored)
        kept.append([path for score, path in scored if score == highest][-1])
    for old in saved:
        if old not in kept:
            # Renamed first: a crash must not leave a checkpoint that is half removed.
            remove(old.rename(old.with_name(old.name + ".partial")))


def _score(folder: Path) -> float | None:
    """The held-out accuracy that a checkpoint was saved with; None for a damaged one."""
    try:
        score = json.loads((folder / MANIFEST).read_bytes())["score"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return score if isinstance(score, int | float) else None


def _remove_partial(root: Path) -> None:
    """Remove what a crash or a full disk left of a checkpoint."""
    for partial in root.glob("step-*.partial"):
        with suppress(OSError):
            remove(partial)
