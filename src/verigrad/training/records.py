"""The lines a run writes: metrics and rollouts, one JSON object each."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from verigrad.diagnosis import Metrics
from verigrad.errors import StorageError
from verigrad.hashing import Purpose, stable_hash
from verigrad.training.disk import writing
from verigrad.types import Group, Rollout


class MetricSink(Protocol):
    """Where a step's metrics go."""

    def write(self, metrics: Metrics) -> None:
        """Take the metrics of one step, ``step`` among them."""
        ...


Key = tuple[object, ...]
"""Which line of a file a record is: its step, and its place in it."""

MAY_DIFFER = ("time/", "memory/", "eval/")
"""Metrics begin so that a line made again need not share: a resume may change evaluation."""


class JsonLines:
    """A file of JSON objects, appended to and handed to the system line by line."""

    def __init__(self, path: Path, set_aside: Mapping[Key, int] | None = None) -> None:
        """Open a file.

        Args:
            path: the file.
            set_aside: what an interrupted run wrote of the steps that are made again, as
                :func:`digests` reads it; None when nothing is made again.

        Raises:
            StorageError: it cannot be opened for writing.
        """
        self.path = path
        self._set_aside = set_aside or {}
        self._remade: list[tuple[Mapping[str, Any], bool]] = []
        with writing(path):
            # Without a buffer: a line that failed must not be tried again when the file closes.
            self._file = path.open("ab", buffering=0)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record."""
        self.write_all([record])

    def write_all(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records; a crash of the process after this loses none of them.

        Raises:
            StorageError: they cannot be written; the last of them may then be torn.
        """
        lines = []
        for record in records:
            # NaN is not JSON: a number that is not finite is an error here, never a line.
            lines.append(json.dumps(record, allow_nan=False) + "\n")
            earlier = self._set_aside.get(_key(record))
            if earlier is not None:
                self._remade.append((record, earlier == _digest(record)))
        with writing(self.path):
            self._append("".join(lines).encode())

    def _append(self, data: bytes) -> None:
        while data:
            data = data[self._file.write(data) :]

    def take_remade(self) -> list[tuple[Mapping[str, Any], bool]]:
        """The records since the last call that are made again, and whether they are as before."""
        taken, self._remade = self._remade, []
        return taken

    def sync(self) -> None:
        """Have the system put the lines on the disk, so that a loss of power loses none."""
        with writing(self.path):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def digests(path: Path, after: int) -> dict[Key, int]:
    """What lines set aside say, for comparison with those that are made again.

    Args:
        path: the file that lines were set aside from.
        after: the last step that is not made again.

    Returns:
        By key a hash of the record less what may differ; of several for a key the latest.
    """
    found: dict[Key, int] = {}
    aside = _aside(path)
    if not aside.exists():
        return found
    with aside.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            record = _parsed(line)
            if record is not None and record["step"] > after:
                found[_key(record)] = _digest(record)
    return found


def _key(record: Mapping[str, Any]) -> Key:
    return tuple(record.get(name) for name in ("step", "purpose", "slot", "completion"))


def _digest(record: Mapping[str, Any]) -> int:
    kept = {name: value for name, value in record.items() if not name.startswith(MAY_DIFFER)}
    return stable_hash(json.dumps(kept))


def _parsed(line: str | bytes) -> dict[str, Any] | None:
    """A whole line's record with its step; None for a torn one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("step"), int) else None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file, less lines that are damaged: a crash may tear the last one.

    Raises:
        StorageError: it is not there, or cannot be read.
    """
    return list(_records(path))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror}; the run wrote it, so something else has "
            "removed or changed it since"
        ) from error
    with file as lines:
        for line in lines:
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


def set_aside_after(path: Path, step: int | None) -> int | None:
    """Keep the lines up to a step, and move what comes after them to a file beside it.

    Args:
        path: a file of records with ``step``, in order; may be missing.
        step: the last step to keep; None keeps nothing.

    Returns:
        The step of the last line that is kept; None when none is.

    Raises:
        StorageError: a file cannot be written; no line is lost then.
    """
    if not path.exists():
        return None
    with writing(path), path.open("r+b") as file:
        end, last = _end_of(file, step)
        if end == os.fstat(file.fileno()).st_size:
            return last
        file.seek(end)
        with _aside(path).open("a+b") as beside:
            _end_line(beside)
            shutil.copyfileobj(file, beside)
            beside.flush()
            os.fsync(beside.fileno())
        # Only now: a crash before this leaves lines twice in the file beside, and none lost.
        file.truncate(end)
        os.fsync(file.fileno())
    return last


def _aside(path: Path) -> Path:
    return path.with_suffix(".set-aside.jsonl")


def _end_of(file: BinaryIO, step: int | None) -> tuple[int, int | None]:
    """Where the last line up to a step ends, and its step; a torn line is of no finished step."""
    end = position = 0
    last: int | None = None
    for line in file:
        position += len(line)
        record = _parsed(line) if line.endswith(b"\n") else None
        if step is not None and record is not None and record["step"] <= step:
            end, last = position, record["step"]
    return end, last


def _end_line(file: BinaryIO) -> None:
    """Let what follows begin a line, where the last one was torn."""
    if file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


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
