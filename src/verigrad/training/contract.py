"""What makes a run the run it is: what a resume may change, must not change, and cannot vouch for.

docs/resume.md says it to people.
"""

import dataclasses
import hashlib
import inspect
import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from verigrad.config import Config, load_config
from verigrad.config.names import is_data
from verigrad.errors import ConfigError
from verigrad.hashing import file_sha256
from verigrad.machine import cores
from verigrad.tasks import EndlessTask, FiniteTask, Mixture, Prepared, Task
from verigrad.training.checks import SOME
from verigrad.types import Problem

MAY_CHANGE = ("run.steps", "run.memory_limit", "evaluation", "checkpoint")
"""Keys and sections that a resume may change; ``run.steps`` only upwards."""

PACKAGES = ("verigrad", "torch", "transformers", "tokenizers", "safetensors")


def may_change(key: str) -> bool:
    """Whether a resume may change a key, such as ``run.steps``."""
    return key in MAY_CHANGE or key.split(".")[0] in MAY_CHANGE


def fixed_keys(config: Config) -> dict[str, Any]:
    """The keys that a resume may not change; a folder may move, so its name is not among them."""
    return {
        # As JSON says it, which knows no tuples: so a manifest is compared with.
        f"{section}.{name}": list(value) if isinstance(value, tuple) else value
        for section, keys in dataclasses.asdict(config).items()
        for name, value in keys.items()
        if not may_change(f"{section}.{name}") and f"{section}.{name}" != "run.folder"
    }


def changed(path: Path, changes: Sequence[tuple[str, str]]) -> Config:
    """A run's configuration with changes that a resume may make.

    Args:
        path: the run's ``config.toml``.
        changes: key and text each, as on a command line.

    Raises:
        ConfigError: a key may not change, or steps would be taken away.
    """
    before = load_config(path)
    after = load_config(path, changes)
    for name, _ in changes:
        key = name.replace("-", "_")
        if not may_change(key):
            raise ConfigError(
                f"{key} may not change in a resume, which goes on with the same run; only "
                "run.steps (upwards), run.memory_limit and the keys of evaluation and checkpoint "
                "may"
            )
    if after.run.steps < before.run.steps:
        raise ConfigError(
            f"run.steps is {after.run.steps}, but the run has {before.run.steps}; a resume may "
            "only raise it"
        )
    return after


def inputs(config: Config, task: Task) -> dict[str, str]:
    """The SHA-256 of everything of the user's that the run is computed from, by its name.

    The files of a task and an algorithm, with the modules beside them that they import; the
    problems, in whichever file they were; and the verifier's own source.

    Args:
        config: names the files.
        task: already loaded, so that what it imports is known.
    """
    found = {str(path): file_sha256(path) for path in _files(config)}
    found["the problems of the task"] = _sha256(_problems(task).encode())
    source = _source(task.verifier)
    if source is not None:
        found["the source of the verifier"] = _sha256(source.encode())
    return found


def changed_inputs(before: Mapping[str, str], config: Config, task: Task) -> list[str]:
    """The names of inputs that are not what they were when the run started."""
    now = inputs(config, task)
    # A module that nobody imported this time may still be there.
    files = {
        name: file_sha256(Path(name)) for name in before.keys() - now.keys() if Path(name).is_file()
    }
    return sorted(name for name in before if (now | files).get(name) != before[name])


def machine(device: str) -> dict[str, Any]:
    """What else the bits of a run depend on: versions of the software, and the hardware."""
    return {
        "versions": {name: _version(name) for name in PACKAGES}
        | {"python": sys.version.split()[0]},
        "commit": _commit(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name(device) if device.startswith("cuda") else None,
        "cores": cores(),
    }


def inexact(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Why a resume may not give the bits that the run would have given; empty when it does.

    Args:
        before: the machine that the run was started on, as :func:`machine` describes it, and the
            name of the "sandbox" that programs ran in.
        now: this one, and the sandbox that they run in now.
    """
    # The kernel's version and the number of idle cores decide no bit.
    names = ("processor", "vector_instructions", "gpu", "commit", "sandbox")
    pairs = [(name.replace("_", " "), before.get(name), now.get(name)) for name in names]
    versions = before["versions"]
    pairs += [(name, versions.get(name), found) for name, found in now["versions"].items()]
    return [f"{name} was {was} and is {found}" for name, was, found in pairs if was != found]


def _files(config: Config) -> Iterator[Path]:
    named = [config.task.name, *config.task.mixture, config.algorithm.preset]
    named += [name for name in (config.verifier.name, config.data.verifier) if name is not None]
    mains = [Path(_without_weight(name).rpartition(":")[0]) for name in named if ".py:" in name]
    yield from mains
    if is_data(config.task.name):
        data = Path(config.task.name)
        yield from [data] if data.is_file() else sorted(filter(Path.is_file, data.rglob("*")))
    if not mains:
        # Nor a module beside one, so none of the thousands that are loaded need be looked at.
        return
    folders = {path.resolve().parent for path in mains}
    library = Path(__file__).resolve().parents[1]
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or "site-packages" in name:
            continue
        path = Path(name).resolve()
        beside = any(folder in path.parents for folder in folders)
        if beside and path not in mains and library not in path.parents and path.is_file():
            yield path


def _without_weight(name: str) -> str:
    """The name of a mixture's part, which begins with a number and a space."""
    weight, space, rest = name.partition(" ")
    return rest if space and weight.isdigit() else name


def _problems(task: Task) -> str:
    """The content of every problem, as text that is the same in every process.

    Of a task without end the first few: its code, which the file or the version tells, is the rest.
    """
    return json.dumps(
        [[p.id, p.content_key, _plain(p.prompt), _plain(p.reference)] for p in _known(task)]
    )


def _known(task: Task) -> Iterator[Problem]:
    if isinstance(task, Prepared):
        # Data, whose files are hashed as they are.
        return
    if isinstance(task, Mixture):
        for part in task.parts:
            yield from _known(part.task)
    elif isinstance(task, FiniteTask):
        yield from (task[index] for index in range(len(task)))
    elif isinstance(task, EndlessTask):
        yield from (task.problem(0, index) for index in range(SOME))


def _plain(value: Any) -> Any:
    """A value as JSON can say it; of any other only the type, whose text may change with each run.

    A set of texts is one: its order is another in each process.
    """
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return type(value).__qualname__
    return value


def _source(verifier: object) -> str | None:
    """The source of a function, or of an object's class; None for the library's, or unreadable."""
    code = verifier if inspect.isroutine(verifier) else type(verifier)
    # Code that was made by exec may be of no module.
    if (code.__module__ or "").partition(".")[0] == "verigrad":
        return None
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _commit() -> str | None:
    """The commit of verigrad's own checkout; None when it is installed from a wheel.

    That of the first time it was asked for, which is nearer to the code that was loaded.
    """
    here = Path(__file__).resolve().parent
    try:
        shown = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return shown.stdout.strip()
