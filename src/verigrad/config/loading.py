"""From a TOML file and overrides to one checked ``Config``, and back to TOML.

Every way to write a setting is brought into one form first, a value per key path (``task = "x"``
is the key ``task.name``), so that an override meets the file's setting whichever way either was
written. Each setting keeps where it came from, for messages and for relative paths.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from verigrad.config import names
from verigrad.config.checks import as_held, from_text, mismatch, shown
from verigrad.config.keys import KEYS, SECTIONS, Key, unknown_key, unknown_section
from verigrad.config.schema import SHORTHAND, Config
from verigrad.errors import ConfigError

COMMAND_LINE = "command line"

RESOLVERS: dict[str, Callable[[Any, Path], object]] = {
    "task.name": names.task,
    "task.mixture": names.mixture,
    "model.name": names.model,
    "data.verifier": names.verifier,
    "algorithm.preset": names.algorithm,
    "algorithm.reference": names.reference,
    "run.folder": names.absolute,
    "verifier.name": names.verifier,
}
"""The keys whose value names something in the world."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A value that somebody wrote for a key."""

    value: object
    source: str
    """The file, or "command line": what a message names first."""

    base: Path
    """What a relative path in the value is relative to."""


def load_config(path: Path | str, overrides: Sequence[tuple[str, str]] = ()) -> Config:
    """Read a configuration file and lay the overrides of a command line over it.

    Args:
        path: A TOML file.
        overrides: Key and text, as in ``("run.steps", "30")``. Dashes may stand for underscores;
            the text is read as the key's type; of two for the same key the later holds.

    Returns:
        The checked configuration, its paths absolute.

    Raises:
        ConfigError: The file cannot be read, or a key or value is not accepted. The text is one
            line: the file or "command line", the key, what was found, what is accepted.
    """
    source, file = str(path), Path(path)
    settings = _settings(_read(file), source=source, base=file.parent)
    return _build(settings | _overriding(overrides), source)


def config_from(
    mapping: Mapping[str, Any],
    *,
    source: str,
    base: Path,
    overrides: Sequence[tuple[str, str]] = (),
) -> Config:
    """Make a configuration from nested mappings of the shape a TOML file has.

    Args:
        mapping: Sections with their keys; ``{"task": "addition"}`` is short for a name.
        source: What messages call it.
        base: The folder that relative paths are relative to.
        overrides: Key and text, laid over the mapping as by ``load_config``.

    Raises:
        ConfigError: A key or value is not accepted.
    """
    settings = _settings(mapping, source=source, base=base)
    return _build(settings | _overriding(overrides), source)


def to_toml(config: Config) -> str:
    """Write a configuration as TOML, every key that has a value; loading it gives it back."""
    return tomli_w.dumps(
        {
            section: {name: value for name, value in keys.items() if value is not None}
            for section, keys in asdict(config).items()
        }
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file; expected the TOML file of a run, such as the one that "
            "`verigrad init` writes"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a folder; name the TOML file in it") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return _parse(content)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _parse(content: bytes) -> dict[str, Any]:
    try:
        # "-sig": some editors on Windows begin a UTF-8 file with a byte order mark.
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(f"is not UTF-8 text (line {line})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError("is not valid TOML: nested too deeply") from None
    except ValueError:
        # Python refuses to read an int of thousands of digits.
        raise ConfigError("a whole number in it does not fit into 64 bits") from None


def _settings(mapping: Mapping[str, Any], *, source: str, base: Path) -> dict[str, Setting]:
    """Bring a file's sections and shorthands into one value per key path."""
    settings = {}
    for section, content in mapping.items():
        for name, value in _section(section, content, source).items():
            path = f"{section}.{name}"
            if path not in KEYS:
                raise ConfigError(f"{source}: {unknown_key(path)}")
            settings[path] = Setting(value=value, source=source, base=base)
    return settings


def _section(section: str, content: object, source: str) -> Mapping[str, object]:
    if section in SECTIONS and isinstance(content, Mapping):
        return content
    if section in SHORTHAND:
        return {SHORTHAND[section]: content}
    if section in SECTIONS:
        raise ConfigError(
            f"{source}: {section} is {shown(content)}; it must be a table [{section}]"
        )
    if section in KEYS:
        table, _, name = section.partition(".")
        raise ConfigError(
            f"{source}: {shown(section)} is one quoted key; write {name} in [{table}]"
        )
    wrong = unknown_section if isinstance(content, Mapping) else unknown_key
    raise ConfigError(f"{source}: {wrong(str(section))}")


def _overriding(overrides: Sequence[tuple[str, str]]) -> dict[str, Setting]:
    settings = {}
    for found, text in overrides:
        key = _overridden_key(found.replace("-", "_"))
        value = from_text(text, key.hint)
        settings[key.path] = Setting(value=value, source=COMMAND_LINE, base=Path.cwd())
    return settings


def _overridden_key(found: str) -> Key:
    path = f"{found}.{SHORTHAND[found]}" if found in SHORTHAND else found
    if path in KEYS:
        return KEYS[path]
    if path in SECTIONS:
        keys = ", ".join(key.path for key in KEYS.values() if key.section == path)
        raise ConfigError(f"{COMMAND_LINE}: {path} is a section; name one of its keys ({keys})")
    raise ConfigError(f"{COMMAND_LINE}: {unknown_key(path)}")


def _build(settings: Mapping[str, Setting], source: str) -> Config:
    """Check each setting where it came from, then make the sections and the whole of them."""
    sections: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for key in KEYS.values():
        if key.path in settings:
            sections[key.section][key.name] = _value(key, settings[key.path])
        elif key.default is MISSING:
            raise ConfigError(f"{source}: {_missing(key)}")
    made: dict[str, Any] = {name: SECTIONS[name](**keys) for name, keys in sections.items()}
    try:
        return Config(**made)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _missing(key: Key) -> str:
    accepted = {"task.name": names.TASK_NAMES, "model.name": names.MODEL_NAMES}[key.path]
    return f'{key.path} is missing; write {key.section} = "...": {accepted}'


def _value(key: Key, setting: Setting) -> object:
    try:
        return _checked(key, setting)
    except ConfigError as error:
        raise ConfigError(f"{setting.source}: {key.path} {error}") from None


def _checked(key: Key, setting: Setting) -> object:
    problem = mismatch(setting.value, key.hint)
    if problem:
        raise ConfigError(problem)
    if key.path in RESOLVERS and setting.value is not None:
        return RESOLVERS[key.path](setting.value, setting.base)
    return as_held(setting.value, key.hint)
