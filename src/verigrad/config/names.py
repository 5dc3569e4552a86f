"""What the names in a configuration stand for: a task, a model, a folder on this machine.

A path is relative to the folder of the file it is written in, or to the working directory when it
comes from the command line.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from verigrad.config.algorithm import PRESETS
from verigrad.config.checks import did_you_mean, shown
from verigrad.config.data import DATA_SUFFIXES, VERIFIERS
from verigrad.config.schema import MIXTURE, MODELS, REASONING_GYM, TASKS
from verigrad.errors import ConfigError

TASK_NAMES = (
    f"{', '.join(TASKS)}, {REASONING_GYM}NAME for a dataset of reasoning-gym, {MIXTURE}, "
    "file.py:name for a task of your own, or data: a file that ends in "
    f"{', '.join(DATA_SUFFIXES)}, a folder that datasets saved, or a hub id owner/name"
)
VERIFIER_NAMES = f"{', '.join(VERIFIERS)}, or file.py:name for one of your own"
ALGORITHM_NAMES = f"{', '.join(PRESETS)}, or file.py:name for one of your own"
MODEL_NAMES = f"{', '.join(MODELS)}, a folder that exists, or a hub id owner/name"
GIVEN_IN_PYTHON = "python:"
"""Begins the name of a task that Python code passed to ``train``; no file can name it."""
HUB_ID = r"[\w.-]+/[\w.-]+"
FOLDER_PREFIXES = ("~", "./", "../", ".\\", "..\\")


def absolute(text: str, base: Path) -> str:
    """A path as it stands from ``base``, with ``~`` for the home folder.

    Args:
        text: The path as it is written.
        base: The folder it is relative to.
    """
    return os.path.abspath(os.path.join(base, os.path.expanduser(text)))


def task(name: str, base: Path) -> str:
    """Check a task's name: a file of any kind gets an absolute path, the others stay.

    Raises:
        ConfigError: The name is none of them, or the file does not exist.
    """
    if name in (*TASKS, MIXTURE) or name.startswith((GIVEN_IN_PYTHON, REASONING_GYM)):
        return name
    path = absolute(name, base)
    if os.path.isdir(path):
        return path
    if name.lower().endswith(DATA_SUFFIXES):
        if not os.path.isfile(path):
            raise ConfigError(f"is {shown(name)}, but there is no file {path}")
        return path
    if os.path.isfile(path):
        raise ConfigError(
            f"is {shown(name)}, a file of another kind than is read; data ends in "
            f"{', '.join(DATA_SUFFIXES)}, so unpack it or convert it, and a task of your own is "
            "file.py:name"
        )
    if re.fullmatch(HUB_ID, name) and not name.startswith(FOLDER_PREFIXES):
        return name
    return _in_a_file(name, base, (*TASKS, MIXTURE), TASK_NAMES)


def mixture(parts: Sequence[str], base: Path) -> tuple[str, ...]:
    """Check the parts of a mixture: weight, name, and perhaps ``@`` and a difficulty.

    Raises:
        ConfigError: A part is not written so, or its name is none, or a mixture itself.
    """
    checked = []
    for part in parts:
        weight, name, difficulty = parts_of(part)
        if name == MIXTURE or name.startswith(GIVEN_IN_PYTHON):
            raise ConfigError(f"has the part {shown(name)}, which cannot be part of a mixture")
        try:
            found = task(name, base)
        except ConfigError as error:
            raise ConfigError(f"has a part that {error}") from None
        suffix = "" if difficulty is None else f"@{difficulty}"
        checked.append(f"{weight} {found}{suffix}")
    return tuple(checked)


def parts_of(part: str) -> tuple[int, str, int | None]:
    """Weight, name and difficulty of a mixture's part: "2 countdown@3" is (2, "countdown", 3).

    Raises:
        ConfigError: It is not written so.
    """
    found = re.fullmatch(r"([1-9][0-9]?) +(.+?)(?:@([1-9][0-9]{0,3}))?", part)
    if found is None:
        raise ConfigError(
            f"has the part {shown(part)}; each is a whole number from 1 to 99, a space and the "
            'name of a task, perhaps with its difficulty: "2 addition", "1 countdown@3"'
        )
    weight, name, difficulty = found.groups()
    return int(weight), name, None if difficulty is None else int(difficulty)


def is_data(name: str) -> bool:
    """Whether the name of a task is that of a file of rows, a folder, or a dataset of the hub."""
    is_file = name.lower().endswith(DATA_SUFFIXES)
    return is_file or os.path.isdir(name) or re.fullmatch(HUB_ID, name) is not None


def verifier(name: str, base: Path) -> str:
    """Check a verifier's name: ``file.py:name`` gets an absolute path, a built-in one stays.

    Raises:
        ConfigError: The name is neither, or the file does not exist.
    """
    return name if name in VERIFIERS else _in_a_file(name, base, VERIFIERS, VERIFIER_NAMES)


def algorithm(name: str, base: Path) -> str:
    """Check an algorithm's name: ``file.py:name`` gets an absolute path, a preset stays.

    Raises:
        ConfigError: The name is neither, or the file does not exist.
    """
    return name if name in PRESETS else _in_a_file(name, base, PRESETS, ALGORITHM_NAMES)


def reference(name: str, base: Path) -> str:
    """Check the name of a reference policy: "start", or a model.

    Raises:
        ConfigError: The name is neither.
    """
    return name if name == "start" else model(name, base)


def _in_a_file(name: str, base: Path, known: tuple[str, ...], accepted: str) -> str:
    """The absolute form of ``file.py:name``."""
    # The last colon: a Windows path has one of its own, after the drive's letter.
    file, _, attribute = name.rpartition(":")
    if not file.endswith(".py"):
        hint = did_you_mean(name, known)
        raise ConfigError(f"is {shown(name)}; {hint}it must be {accepted}")
    if not attribute.isidentifier():
        raise ConfigError(
            f"is {shown(name)}; after the colon comes a name that the file defines, "
            f"found {shown(attribute)}"
        )
    path = absolute(file, base)
    if not os.path.isfile(path):
        raise ConfigError(f"is {shown(name)}, but there is no file {path}")
    return f"{path}:{attribute}"


def model(name: str, base: Path) -> str:
    """Check a model's name: an alias or a hub id stays, a folder gets an absolute path.

    Raises:
        ConfigError: The name is none of them, or the folder does not exist.
    """
    if name in MODELS:
        return name
    path = absolute(name, base)
    if os.path.isdir(path):
        return path
    if os.path.isabs(name) or name.startswith(FOLDER_PREFIXES):
        raise ConfigError(f"is {shown(name)}, but there is no folder {path}")
    if re.fullmatch(HUB_ID, name):
        return name
    hint = did_you_mean(name, MODELS)
    raise ConfigError(f"is {shown(name)}; {hint}it must be {MODEL_NAMES}")
