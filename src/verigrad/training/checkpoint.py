"""Checkpoints: written beside their name, flushed to disk, renamed when complete."""

import json
import os
import shutil
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from verigrad.errors import RunFolderError
from verigrad.training.state import TrainerState

POLICY = "policy.safetensors"
OPTIMIZER = "optimizer.safetensors"
REFERENCE = "reference.safetensors"
STATE = "state.json"


def save_checkpoint(root: Path, state: TrainerState, *, keep: int) -> Path:
    """Save a state as ``step-NNNNNN`` and remove all but the newest ``keep``.

    Args:
        root: the run's folder of checkpoints.
        state: what to save.
        keep: at least 1.

    Returns:
        The checkpoint's folder. One that exists for this step already is left as it is.
    """
    final = root / f"step-{state.step:06d}"
    if not final.exists():
        partial = final.with_name(final.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_file(state.policy_tensors(), partial / POLICY)
        save_file(state.optimizer_tensors(), partial / OPTIMIZER)
        save_file(state.reference_tensors(), partial / REFERENCE)
        (partial / STATE).write_text(json.dumps(state.plain(), allow_nan=False), encoding="utf-8")
        for path in [*partial.iterdir(), partial]:
            _flush(path)
        partial.rename(final)
        _flush(root)
    for old in checkpoints(root)[:-keep]:
        shutil.rmtree(old)
    return final


def checkpoints(root: Path) -> list[Path]:
    """The complete checkpoints of a run, oldest first."""
    return sorted(path for path in root.glob("step-*") if path.suffix != ".partial")


def load_checkpoint(folder: Path, state: TrainerState) -> None:
    """Take over a checkpoint, in place.

    Raises:
        RunFolderError: a file is missing or damaged, or belongs to another model.
    """
    try:
        plain = json.loads((folder / STATE).read_text(encoding="utf-8"))
        policy, optimizer, reference = (
            load_file(folder / name) for name in (POLICY, OPTIMIZER, REFERENCE)
        )
        state.restore(policy, optimizer, reference, plain)
    except (OSError, SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise RunFolderError(
            f"checkpoint {folder} cannot be used: {type(error).__name__}: {error}; remove that "
            "folder to resume from the one before it"
        ) from error


def _flush(path: Path) -> None:
    """Have the system put a file or a folder's entries on the disk."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
