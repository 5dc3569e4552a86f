"""What a program's values look like on their way out: JSON of plain data.

Numbers, text, true, false and nothing stand for themselves; everything else is a list whose first
item says what it is: ``["list", 1, 2]``, ``["dict", ["a", 1]]``, ``["int", "0x1f"]`` for one too
long for JSON, ``["other", "generator"]`` for what is not plain data.

The program may have changed any built-in function by the time its values are written, so this
module has a copy of the built-ins of its own. A subclass is written as the plain type it is based
on, by that type's methods: whatever the subclass says of itself counts for nothing.
"""

import builtins
import json.encoder

globals()["__builtins__"] = dict(vars(builtins))  # The functions below are bound to this copy.

DEPTH = 100
"""How deep values may be nested."""

_LONG = 2**63

# Written in C: no change to a module of the library reaches it.
quoted = json.encoder.encode_basestring_ascii


def name_of_type(value: object) -> str:
    """The name of a value's type, whatever the type says of itself."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return name


class TooBigError(Exception):
    """A value takes more room than allowed."""


class Writer:
    """Writes values as text, up to a number of characters."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._pieces: list[str] = []

    def text(self, value: object) -> str:
        """The value as JSON.

        Raises:
            TooBigError: it takes too much room.
        """
        self._write(value, 0)
        return "".join(self._pieces)

    def _put(self, piece: str) -> None:
        self._room -= len(piece)
        if self._room < 0:
            raise TooBigError
        self._pieces.append(piece)

    def _write(self, value: object, depth: int) -> None:
        if value is None or value is True or value is False:
            self._put("null" if value is None else "true" if value else "false")
        elif isinstance(value, int):
            self._int(value)
        elif isinstance(value, float):
            self._float(value)
        elif isinstance(value, str):
            self._string(value)
        elif depth >= DEPTH:
            self._put('["other","nested too deep"]')
        else:
            self._container(value, depth)

    def _int(self, value: int) -> None:
        number = int.__add__(value, 0)
        if int.bit_length(number) > 4 * self._room:
            raise TooBigError
        self._put(int.__repr__(number) if -_LONG < number < _LONG else f'["int","{number:#x}"]')

    def _float(self, value: float) -> None:
        said = float.__repr__(value)
        self._put(f'["float","{said}"]' if "n" in said else said)

    def _string(self, value: str) -> None:
        if str.__len__(value) > self._room:
            raise TooBigError
        self._put(quoted(str.__str__(value)))

    def _container(self, value: object, depth: int) -> None:
        if isinstance(value, list):
            self._items("list", list.__iter__(value), depth)
        elif isinstance(value, tuple):
            self._items("tuple", tuple.__iter__(value), depth)
        elif isinstance(value, set):
            self._items("set", set.__iter__(value), depth)
        elif isinstance(value, frozenset):
            self._items("frozenset", frozenset.__iter__(value), depth)
        elif isinstance(value, dict):
            self._items("dict", iter(dict.items(value)), depth)
        elif isinstance(value, bytes):
            self._put(f'["bytes","{bytes.hex(value)}"]')
        elif isinstance(value, complex):
            self._items("complex", iter((value.real, value.imag)), depth)
        else:
            self._put(f'["other",{quoted(name_of_type(value))}]')

    def _items(self, kind: str, items: object, depth: int) -> None:
        self._put(f'["{kind}"')
        for item in items:  # type: ignore[attr-defined]
            self._put(",")
            self._write(item, depth + 1)
        self._put("]")
