"""Keys and values that are kept while generating: of prompts, once each, and of completions."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from verigrad.policies.attention import KeysValues

ROOM = 32
"""Columns reserved at a time beyond those in use, so that a new token does not copy the others."""


@dataclass(frozen=True, kw_only=True)
class PromptKeys:
    """Keys and values of P prompts, right-aligned in as many columns as the longest has tokens."""

    layers: dict[int, KeysValues]
    """Of each attention layer: ``[P, heads of keys, columns, width]`` each."""

    positions: Tensor
    """``[P, columns]``: of each column in its prompt; negative where there is no token."""

    lengths: Tensor
    """``[P]``, in tokens."""

    @staticmethod
    def from_row(layers: dict[int, KeysValues], places: Tensor, lengths: Tensor) -> "PromptKeys":
        """Take prompts out of a row in which what they begin with together stands once.

        Args:
            layers: of the row: ``[1, heads of keys, N, width]`` each.
            places: ``[P, longest]``, where each prompt's tokens stand in the row.
            lengths: ``[P]``, in tokens.
        """
        width = places.shape[1]
        columns = torch.arange(width, device=places.device)
        positions = columns - (width - lengths).unsqueeze(1)
        aligned = places.gather(1, positions.clamp(min=0))

        def taken(side: Tensor, kind: torch.dtype) -> Tensor:
            # Rounded as the layer's values are, and then in float32 at least; see StepAttention.
            rounded = side.to(kind).to(torch.promote_types(kind, torch.float32))
            return rounded[0][:, aligned].transpose(0, 1)

        return PromptKeys(
            layers={
                layer: (taken(keys, values.dtype), taken(values, values.dtype))
                for layer, (keys, values) in layers.items()
            },
            positions=positions,
            lengths=lengths,
        )

    def selected(self, prompts: Tensor) -> "PromptKeys":
        """Those of some prompts, in as many columns as the longest of these has tokens."""
        lengths = self.lengths[prompts]
        first = self.positions.shape[1] - int(lengths.max())
        return PromptKeys(
            layers={
                layer: (keys[prompts, :, first:], values[prompts, :, first:])
                for layer, (keys, values) in self.layers.items()
            },
            positions=self.positions[prompts, first:],
            lengths=lengths,
        )

    def joined(self, other: "PromptKeys") -> "PromptKeys":
        """Those of these prompts and, behind them, of others."""
        width = max(self.positions.shape[1], other.positions.shape[1])

        def both(mine: Tensor, others: Tensor) -> Tensor:
            return torch.cat(
                [pad(side, (0, 0, width - side.shape[2], 0)) for side in (mine, others)]
            )

        return PromptKeys(
            layers={
                layer: (both(keys, other.layers[layer][0]), both(values, other.layers[layer][1]))
                for layer, (keys, values) in self.layers.items()
            },
            positions=torch.cat(
                [
                    pad(side, (width - side.shape[1], 0), value=-1)
                    for side in (self.positions, other.positions)
                ]
            ),
            lengths=torch.cat([self.lengths, other.lengths]),
        )


class Columns:
    """Keys and values of completions: a row for each state, and a column for each step.

    States that were admitted later have nothing in the columns before.
    """

    def __init__(self, rows: int, device: str) -> None:
        self.positions = torch.zeros(rows, 0, dtype=torch.int64, device=device)
        """``[S, columns]``: of each token in its sequence; negative where there is none."""

        self._stores: dict[int, KeysValues] = {}

    def add_rows(self, rows: int) -> None:
        """Add states, without a token, behind those that are there."""
        self.positions = pad(self.positions, (0, 0, 0, rows), value=-1)
        # Zeros, as what is masked still counts when it is no number.
        room = (0, 0, 0, 0, 0, 0, 0, rows)
        self._stores = {
            layer: (pad(keys, room), pad(values, room))
            for layer, (keys, values) in self._stores.items()
        }

    def select(self, states: Tensor) -> None:
        """Keep or repeat states, and forget the first columns once nobody has a token there."""
        self.positions = self.positions[states]
        empty = int((self.positions < 0).all(dim=0).cumprod(dim=0).sum())
        self.positions = self.positions[:, empty:]
        self._stores = {
            layer: (keys[states, :, empty:], values[states, :, empty:])
            for layer, (keys, values) in self._stores.items()
        }

    def begin(self, position: Tensor) -> None:
        """Begin a column for one more token of each state, at these positions, ``[S]``."""
        self.positions = torch.cat([self.positions, position.unsqueeze(1)], dim=1)

    def put(self, layer: int, key: Tensor, value: Tensor) -> KeysValues:
        """Put a layer's keys and values, ``[S, heads of keys, 1, width]``, in the last column.

        Returns:
            Those of all columns.
        """
        used = self.positions.shape[1]
        stores = self._stores.get(layer)
        if stores is None or stores[0].shape[2] < used:
            old = (None, None) if stores is None else stores
            stores = _roomy(key, old[0], used), _roomy(value, old[1], used)
            self._stores[layer] = stores
        stores[0][:, :, used - 1 : used] = key
        stores[1][:, :, used - 1 : used] = value
        return stores[0][:, :, :used], stores[1][:, :, :used]


def _roomy(new: Tensor, old: Tensor | None, used: int) -> Tensor:
    """A store with ROOM columns more than are used, which starts with the old one's."""
    store = new.new_zeros(*new.shape[:2], used + ROOM, new.shape[3])
    if old is not None:
        store[:, :, : old.shape[2]] = old
    return store
