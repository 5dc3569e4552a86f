"""Every configuration key there is, and the nearest one to a name that is none.

The dataclasses of the schema are the only source: this module reads their types, docstrings and
defaults, for the loader and for the command line's help.
"""

import ast
import dataclasses
import difflib
import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_type_hints

from verigrad.config.checks import shown
from verigrad.config.fields import Section
from verigrad.config.schema import SHORTHAND, Config

CLOSE_ENOUGH = 0.6
"""Names less similar than this are not suggested."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One configuration key, such as ``run.steps``."""

    section: str
    name: str
    hint: Any
    """The type, with its limits."""

    default: Any
    """The value without the key; ``dataclasses.MISSING`` where the key is required."""

    @property
    def path(self) -> str:
        """The name with its section: ``run.steps``."""
        return f"{self.section}.{self.name}"


SECTIONS: dict[str, type[Section]] = get_type_hints(Config)
"""The dataclass of each TOML section."""


def _keys_of(section: str) -> list[Key]:
    hints = get_type_hints(SECTIONS[section], include_extras=True)
    return [
        Key(section=section, name=spec.name, hint=hints[spec.name], default=spec.default)
        for spec in dataclasses.fields(SECTIONS[section])  # type: ignore[arg-type]
    ]


KEYS: dict[str, Key] = {key.path: key for section in SECTIONS for key in _keys_of(section)}
"""Every key by its path."""


def key_docs(section: str) -> dict[str, str]:
    """The docstring of each key of a section, read from the source of its dataclass."""
    source = ast.parse(inspect.getsource(SECTIONS[section]))
    pairs = pairwise(source.body[0].body)  # type: ignore[attr-defined]
    return {
        ast.unparse(field.target): inspect.cleandoc(ast.literal_eval(docstring.value))
        for field, docstring in pairs
        if isinstance(field, ast.AnnAssign)
    }


def unknown_key(found: str) -> str:
    """Say that a key is none, which one is nearest, and what the keys of its section are.

    Args:
        found: A key with its section (``run.stepz``), or a section alone (``samplng``).
    """
    section, _, _ = found.partition(".")
    nearest = nearest_key(found)
    hint = f"; did you mean {nearest}?" if nearest else ""
    if "." in found and section in SECTIONS:
        names = ", ".join(key.name for key in KEYS.values() if key.section == section)
        return f"{written(found)} is not a key{hint} (keys of [{section}]: {names})"
    return f"{written(found)} is not a key{hint} (sections: {', '.join(SECTIONS)})"


def unknown_section(found: str) -> str:
    """Say that a table of the file is no section, and which one is nearest."""
    nearest = difflib.get_close_matches(found.lower(), SECTIONS, n=1, cutoff=CLOSE_ENOUGH)
    hint = f"; did you mean [{nearest[0]}]?" if nearest else ""
    return f"[{written(found)}] is not a section{hint} (sections: {', '.join(SECTIONS)})"


def nearest_key(found: str, candidates: Iterable[str] = (*SHORTHAND, *KEYS)) -> str | None:
    """The key that a misspelt or misplaced one most likely means; None where nothing is near.

    Example: ``run.stepz`` and ``steps`` are ``run.steps``; ``run.temperature`` is
    ``sampling.temperature``; ``algoritm`` is ``algorithm``.
    """
    return max(
        (key for key in candidates if _closeness(found, key)[0] >= CLOSE_ENOUGH),
        key=lambda key: sum(_closeness(found, key)),
        default=None,
    )


def _closeness(found: str, key: str) -> tuple[float, float]:
    """How near the last part of two names is, from 0 to 1, and half of that for their section."""
    section, _, name = found.lower().rpartition(".")
    key_section, _, key_name = key.rpartition(".")
    similarity = difflib.SequenceMatcher(None, name, key_name).ratio()
    return similarity, difflib.SequenceMatcher(None, section, key_section).ratio() / 2


def written(name: str) -> str:
    """A key as TOML writes it: quoted where it has other characters than a bare key may."""
    return name if re.fullmatch(r"[A-Za-z0-9_.-]+", name) else shown(name)
