"""The lines a run writes: metrics and rollouts, one JSON object each."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from verigrad.diagnosis import Metrics
from verigrad.hashing import Purpose
from verigrad.types import Group, Rollout


class MetricSink(Protocol):
    """Where a step's metrics go."""

    def write(self, metrics: Metrics) -> None:
        """Take the metrics of one step, ``step`` among them."""
        ...


class JsonLines:
    """A file of JSON objects, appended to and handed to the system line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record."""
        self.write_all([record])

    def write_all(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records; a crash of the process after this loses none of them."""
        for record in records:
            # NaN is not JSON: a number that is not finite is an error here, never a line.
            self._file.write(json.dumps(record, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file, less lines that are damaged: a crash may tear the last one."""
    return list(_records(path))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


def set_aside_after(path: Path, step: int | None) -> None:
    """Keep the lines up to a step, and move the later ones to a file beside it.

    Args:
        path: a file of records with ``step``; may be missing.
        step: the last step to keep; None keeps nothing.
    """
    if not path.exists():
        return
    kept: list[str] = []
    later: list[str] = []
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    for line in text.splitlines(keepends=True):
        (kept if step is not None and _step_of(line) <= step else later).append(line)
    if not later:
        return
    aside = path.with_suffix(".set-aside.jsonl")
    with aside.open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(later)
    partial = path.with_suffix(".partial")
    partial.write_text("".join(kept), encoding="utf-8", errors="surrogateescape")
    os.replace(partial, path)


def _step_of(line: str) -> float:
    """The step of a line; a torn one belongs to no finished step."""
    if not line.endswith("\n"):
        return float("inf")
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return float("inf")


def rollout_records(
    groups: Iterable[Group], *, step: int, purpose: Purpose
) -> Iterable[dict[str, Any]]:
    """One record per rollout, in order of slot and completion."""
    for slot, group in enumerate(groups):
        for index, rollout in enumerate(group.rollouts):
            yield {
                "step": step,
                "purpose": str(purpose),
                "slot": slot,
                "completion": index,
                **_rollout_record(group, rollout),
            }


def _rollout_record(group: Group, rollout: Rollout) -> dict[str, Any]:
    completion, verdict = rollout.completion, rollout.verdict
    return {
        "problem": group.problem.id,
        "prompt": group.problem.prompt,
        "reference": _as_json(group.problem.reference),
        "text": completion.text,
        "status": str(verdict.status),
        "reward": verdict.reward,
        "components": _as_json(dict(verdict.components)),
        "detail": verdict.detail,
        "finish": str(completion.finish),
        "policy_version": completion.policy_version,
        "token_ids": completion.token_ids,
        "log_probs": completion.log_probs,
    }


def _as_json(value: Any) -> Any:
    """What a task or a verifier of the user's made: as it is where JSON can say it, else in words.

    A reference may be anything, and a component may be NaN; neither may end a run.
    """
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(value)
    return value


def side_by_side(rollouts: Path, last_step: int) -> list[tuple[str, str, str]]:
    """Held-out prompts with their completions before and after training, changed ones if any."""
    before: dict[str, tuple[str, str]] = {}
    after: dict[str, str] = {}
    for record in _records(rollouts):
        if record.get("purpose") != Purpose.EVALUATE or not _can_be_shown(record):
            continue
        if record["step"] == 0:
            before[record["problem"]] = (_text_of(record["prompt"]), record["text"])
        elif record["step"] == last_step:
            after[record["problem"]] = record["text"]
    both = [(*before[problem], after[problem]) for problem in before if problem in after]
    changed = [row for row in both if row[1] != row[2]]
    return changed or both


def _can_be_shown(record: Mapping[str, Any]) -> bool:
    """Whether a record still holds what it was written with; a file may be damaged."""
    prompt = record.get("prompt")
    texts = [record.get("problem"), record.get("text")]
    if isinstance(prompt, list):
        prompt = prompt[-1].get("content") if prompt and isinstance(prompt[-1], dict) else None
    return "step" in record and all(isinstance(text, str) for text in [*texts, prompt])


def _text_of(prompt: str | list[dict[str, str]]) -> str:
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that it is either the old one or the new one, never half of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, path)
