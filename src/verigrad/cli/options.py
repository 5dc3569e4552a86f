"""One option per configuration key, made from the schema's dataclasses."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING
from functools import cache
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from verigrad.config import SHORTHAND
from verigrad.config.checks import expected, names_in, scalars_in
from verigrad.config.keys import KEYS, SECTIONS, Key, key_docs

ConfigFile = Annotated[Path, Parameter(name="CONFIG", help="The TOML file that describes the run.")]


@cache
def _key_options(*sections: str) -> list[inspect.Parameter]:
    """One keyword parameter per configuration key, for a command's signature."""
    options = []
    for section in sections or SECTIONS:
        group = Group.create_ordered(section, help=inspect.getdoc(SECTIONS[section]) or "")
        docs = key_docs(section)
        options += [
            _keyoption_of(key, docs[key.name], group)
            for key in KEYS.values()
            if key.section == section
        ]
    return options


def _keyoption_of(key: Key, doc: str, group: Group) -> inspect.Parameter:
    short = [option_of(key.section)] if SHORTHAND.get(key.section) == key.name else []
    chosen_or_number = names_in(key.hint) or scalars_in(key.hint) != {str}
    accepted = f" ({expected(key.hint)})" if chosen_or_number else ""
    parameter = Parameter(
        # The long name first: cyclopts would take "--task.name" as a part of "--task".
        name=[option_of(key.path), *short],
        help=" ".join(doc.replace("``", "").split()) + accepted,
        metavar="VALUE",
        group=group,
        show_default=False if key.default in (None, MISSING, ()) else str(key.default),
    )
    return inspect.Parameter(
        # A Python name has no dots; no name in the schema has two underscores.
        key.path.replace(".", "__"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, parameter],
    )


def with_key_options(
    *sections: str,
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Put one option per configuration key in the place of a command's ``**changes``.

    Args:
        sections: whose keys; without any, those of all.
    """

    def decorated(command: Callable[..., int]) -> Callable[..., int]:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        new = signature.replace(parameters=[*own, *_key_options(*sections)])
        command.__signature__ = new  # type: ignore[attr-defined]
        return command

    return decorated


def overrides(changes: dict[str, str]) -> list[tuple[str, str]]:
    """The options that were given, as key paths and texts."""
    return [(name.replace("__", "."), text) for name, text in changes.items()]


def option_of(path: str) -> str:
    """The option of a key: ``run.max_tokens`` is ``--run.max-tokens``."""
    return f"--{path.replace('_', '-')}"


def path_of(option: str) -> str:
    """The key of an option: ``--run.max-tokens`` is ``run.max_tokens``."""
    return option.lstrip("-").replace("-", "_")
