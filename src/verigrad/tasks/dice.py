"""Random choices that have an address instead of a state."""

from collections.abc import Sequence
from typing import TypeVar

from verigrad.hashing import stable_hash

Item = TypeVar("Item")


class Dice:
    """Throws that depend on an address and on how many came before, in every process alike.

    Example: ``Dice("sorting", 0, 417).number(1, 6)`` is the same number everywhere, for ever.
    """

    def __init__(self, *address: object) -> None:
        self._address = address
        self._thrown = 0

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        self._thrown += 1
        return low + stable_hash("dice", *self._address, self._thrown) % (high - low + 1)

    def choice(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.number(0, len(items) - 1)]

    def sample(self, items: Sequence[Item], count: int) -> list[Item]:
        """So many of the items, each at most once, in any order."""
        left = list(items)
        return [left.pop(self.number(0, len(left) - 1)) for _ in range(count)]
