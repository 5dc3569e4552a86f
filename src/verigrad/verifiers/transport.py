"""How a verifier gets into another process: by name, or by value.

A text ``file.py:function`` or ``module:function`` is loaded there. A function of a module that the
other process can import is imported there. Anything else (a function of a script, of a notebook or
of standard input, a lambda, a closure, an object) is taken apart and put together again there.
"""

import contextlib
import functools
import importlib
import importlib.util
import inspect
import os
import pickle
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from verigrad.errors import UserError
from verigrad.hashing import stable_hash
from verigrad.userfile import MODULE_PREFIX
from verigrad.verifiers.boundary import Verifier

_NAMED = re.compile(r"(?P<place>.+):(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shipment:
    """A verifier on its way to another process."""

    place: str = ""
    """A Python file or a module; empty for a verifier that travels by value."""

    name: str = ""
    """The verifier's name there."""

    value: bytes = b""
    """The verifier itself."""

    path: tuple[str, ...] = ()
    """Where modules are looked for."""


def pack(verifier: Verifier | str) -> Shipment:
    """Make a verifier ready to travel.

    Args:
        verifier: a function or another callable; or its name, as ``file.py:function`` or
            ``module:function``.

    Raises:
        UserError: it cannot travel, and why.
    """
    # An empty entry means the working directory, which may be another when it is looked up.
    path = tuple(entry or os.getcwd() for entry in sys.path)
    if not isinstance(verifier, str):
        return Shipment(value=_by_value(verifier), path=path)
    match = _NAMED.fullmatch(verifier)
    if match is None:
        raise UserError(
            f"the verifier is named {verifier!r}; expected file.py:function or module:function"
        )
    place = match["place"]
    if place.endswith(".py"):
        file = Path(place).resolve()
        if not file.is_file():
            raise UserError(f"the verifier {verifier!r} is in {file}, which does not exist")
        place = str(file)
    return Shipment(place=place, name=match["name"], path=path)


def unpack(shipment: Shipment) -> Verifier:
    """The verifier, in the process that it has travelled to.

    Raises:
        UserError: there is no callable of that name.
        Exception: whatever loading it raises.
    """
    sys.path[:] = shipment.path
    if shipment.value:
        # Made by pack in the process that started this one.
        return pickle.loads(shipment.value)  # type: ignore[no-any-return]  # noqa: S301
    found: Any = _load(shipment.place)
    for part in shipment.name.split("."):
        if not hasattr(found, part):
            raise UserError(f"{shipment.place} has no {shipment.name!r}")
        found = getattr(found, part)
    if not callable(found):
        raise UserError(
            f"{shipment.place}:{shipment.name} is a {type(found).__name__}; expected a function of "
            "a completion and a reference"
        )
    verifier: Verifier = found
    return verifier


def _load(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    name = f"verigrad_verifier_{stable_hash(Path(place)):016x}"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None  # It ends in .py.
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _by_value(verifier: Verifier) -> bytes:
    import cloudpickle

    if not callable(verifier):
        raise UserError(
            f"the verifier is a {type(verifier).__name__}; expected a function of a completion and "
            "a reference, or its name"
        )
    with _whole_modules(verifier):
        try:
            value: bytes = cloudpickle.dumps(verifier)
        except Exception as error:
            raise UserError(
                f"the verifier {_name(verifier)} cannot be sent to a worker process: "
                f"{_reason(verifier, error)}; make what it needs inside the function, or name the "
                "verifier as file.py:function"
            ) from error
    return value


@contextlib.contextmanager
def _whole_modules(verifier: Verifier) -> Iterator[None]:
    """Have modules that another process could not import travel by value."""
    import cloudpickle

    names = {getattr(part, "__module__", None) for part in _parts(verifier)}
    # A verifier may hold functions of the user's files at any depth.
    names |= {name for name in sys.modules if name.startswith(MODULE_PREFIX)}
    modules = [sys.modules[name] for name in names if name in sys.modules and name != "__main__"]
    hidden = [module for module in modules if not _can_be_imported(module)]
    for module in hidden:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in hidden:
            cloudpickle.unregister_pickle_by_value(module)


def _parts(verifier: object) -> Iterator[object]:
    """A callable, its type, and the function inside a partial or a method."""
    yield verifier
    yield type(verifier)
    if isinstance(verifier, functools.partial):
        yield from _parts(verifier.func)
    elif inspect.ismethod(verifier):
        yield from _parts(verifier.__self__)


def _can_be_imported(module: ModuleType) -> bool:
    """Whether a process with the same path finds the package that the module belongs to."""
    package = module.__name__.partition(".")[0]
    return any(finder.find_spec(package, None) is not None for finder in sys.meta_path)


def _reason(verifier: Verifier, error: Exception) -> str:
    """What stands in the way, by the name that the verifier knows it under."""
    import cloudpickle

    if inspect.isfunction(verifier):
        known = inspect.getclosurevars(verifier)
        for name, value in {**known.globals, **known.nonlocals}.items():
            try:
                cloudpickle.dumps(value)
            except Exception as cause:  # noqa: BLE001  pickling runs any object's methods
                return f"it uses {name!r}, a {type(value).__name__} ({cause})"
    return str(error)


def _name(verifier: object) -> str:
    return getattr(verifier, "__qualname__", type(verifier).__qualname__)
