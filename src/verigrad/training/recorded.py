"""Bad updates on disk, so that they can be made again: the batch, and the weights it met.

bad-updates/policy-00000017/policy.safetensors            the weights after 17 updates
bad-updates/policy-00000017/step-000012-update-1.*        a batch that met them

Updates that are skipped leave the weights as they are, so several in a row share one copy.
"""

import hashlib
import json
import re
import shutil
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, contiguous_format

from verigrad.batch import Batch
from verigrad.errors import RunFolderError
from verigrad.hashing import file_sha256
from verigrad.training.bad_updates import BadUpdate
from verigrad.training.disk import remove, write_json, writing
from verigrad.training.state import TrainerState
from verigrad.types import Prompt

KEPT = 3
"""Weights take space: so many policy versions are kept with their batches, newest first."""

POLICY = "policy.safetensors"
NAME = re.compile(r"step-(?P<step>\d+)-update-\d+")


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A bad update as it was recorded."""

    step: int
    number: int
    """Which update of the step, from 1."""

    policy_version: int
    """Updates made before it."""

    token_budget: int
    """Most tokens in one of its passes."""

    entropy_coefficient: float
    bad: BadUpdate
    batch: Batch
    weights: dict[str, Tensor]
    """The policy's tensors by name."""


def record_bad_update(
    root: Path, state: TrainerState, batch: Batch, bad: BadUpdate, number: int
) -> Path:
    """Write what is needed to make a bad update of the current step again.

    Args:
        root: the run's folder of bad updates.
        state: before the update, which it counts as a bad one already.
        batch: of the update.
        bad: what came of it.
        number: which update of the step it is, from 1.

    Returns:
        The description of it; written last, so that where it is the rest is too.

    Raises:
        StorageError: it cannot be written.
    """
    folder = root / f"policy-{state.policy_version:08d}"
    path = folder / f"step-{state.step + 1:06d}-update-{number}.json"
    if state.bad_updates == 1:
        # The first that met these weights; what is there is of steps that a resume makes again.
        shutil.rmtree(folder, ignore_errors=True)
    prompts = [[prompt.problem_id, prompt.token_ids] for prompt in batch.prompts]
    tensors = {f.name: getattr(batch, f.name) for f in fields(batch) if f.name != "prompts"}
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / POLICY).exists():
            _save(state.policy_tensors(), folder / POLICY)
        _save({k: v for k, v in tensors.items() if v is not None}, path.with_suffix(".safetensors"))
        seal = _seal(path, prompts)
    description = {
        "step": state.step + 1,
        "update": number,
        "policy_version": state.policy_version,
        "token_budget": state.token_budget,
        "entropy_coefficient": state.entropy_coefficient,
        # As text: JSON has no NaN.
        "loss": str(bad.loss),
        "gradient_norm": str(bad.gradient_norm),
        "cause": bad.cause,
        "prompts": prompts,
        "sha256": seal,
    }
    write_json(path, description)
    with writing(root):
        for old in sorted(root.glob("policy-*"))[:-KEPT]:
            remove(old)
    return path


def recorded_updates(root: Path) -> dict[int, list[Path]]:
    """The descriptions of the recorded updates of each step, in the order they were tried."""
    found: dict[int, list[Path]] = {}
    for path in sorted(root.glob("policy-*/step-*-update-*.json")):
        name = NAME.fullmatch(path.stem)
        if name:
            found.setdefault(int(name["step"]), []).append(path)
    return found


def load_recorded(path: Path) -> Recorded:
    """Read a recorded update.

    Raises:
        RunFolderError: a file is missing or damaged.
    """
    try:
        description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if description["sha256"] != _seal(path, description["prompts"]):
            raise ValueError("prompts, batch and weights are not those that were written")
        return Recorded(
            step=int(description["step"]),
            number=int(description["update"]),
            policy_version=int(description["policy_version"]),
            token_budget=int(description["token_budget"]),
            entropy_coefficient=float(description["entropy_coefficient"]),
            bad=BadUpdate(
                loss=float(description["loss"]),
                gradient_norm=float(description["gradient_norm"]),
                cause=str(description["cause"]),
            ),
            batch=_batch(load_file(path.with_suffix(".safetensors")), description["prompts"]),
            weights=load_file(path.parent / POLICY),
        )
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"the recorded update {path} cannot be read ({type(error).__name__}: {error}); it is "
            "damaged, or was not written to its end"
        ) from error


def _seal(path: Path, prompts: object) -> str:
    """The SHA-256 of the batch and the weights of a record: a token id that has changed is none."""
    digest = hashlib.sha256(json.dumps(prompts).encode())
    for file in (path.with_suffix(".safetensors"), path.parent / POLICY):
        digest.update(file_sha256(file).encode())
    return digest.hexdigest()


def _batch(tensors: dict[str, Tensor], prompts: list[tuple[str, list[int]]]) -> Batch:
    absent: dict[str, Any] = {field.name: None for field in fields(Batch)}
    own = tuple(Prompt(problem_id=str(name), token_ids=tuple(ids)) for name, ids in prompts)
    return Batch(**(absent | tensors | {"prompts": own}))


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors so that the file is whole or not there; each gets memory of its own."""
    own = {
        name: value.cpu().clone(memory_format=contiguous_format) for name, value in tensors.items()
    }
    partial = path.with_name(path.name + ".partial")
    save_file(own, partial)
    partial.replace(path)
