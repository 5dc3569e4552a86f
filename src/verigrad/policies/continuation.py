"""Generating from a causal language model: the prompt once, then one token per live row."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from verigrad.policies.forward import layers_of, new_cache, run_row, run_step
from verigrad.policies.packing import distinct, pack
from verigrad.policies.roomy import roomy_cache

PROMPT_TOKENS_AT_ONCE = 512
"""Prompts are run side by side up to this many tokens, beyond which attention grows costly."""


class SharedContinuation:
    """Rows that go on from their prompt's keys and values; see ``policies.base.Continuation``.

    Completions that have been the same so far are one row of the cache, which is repeated when they
    part.
    """

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], completions: int) -> None:
        self._model = model
        self._device = str(next(model.parameters()).device)
        lengths = torch.tensor([len(ids) for ids in prompts], device=self._device)
        width = int(lengths.max())
        # Prompts stand right-aligned; a key at a negative position is padding.
        columns = torch.arange(width, device=self._device)
        self._key_positions = columns - (width - lengths).unsqueeze(1)
        self._cache, self._logits = self._run_prompts(prompts)
        self._next_position = lengths
        self._states = torch.arange(len(prompts), device=self._device)
        self._states = self._states.repeat_interleave(completions)

    def logits(self) -> tuple[Tensor, Tensor]:
        """Logits ``[S, V]`` of the next token in each state, and each live row's state."""
        return self._logits, self._states

    def advance(self, rows: Tensor, token_ids: Tensor) -> None:
        """Keep some rows and run one more token of each, once where they go on alike."""
        parents, tokens, self._states = distinct(
            self._states[rows], token_ids, self._logits.shape[-1]
        )
        self._select(parents)
        position = self._next_position
        self._key_positions = torch.cat([self._key_positions, position.unsqueeze(1)], dim=1)

        def allowed(window: int | None) -> Tensor:
            seen = self._key_positions >= 0
            if window is None:
                return seen
            return seen & (position.unsqueeze(1) - self._key_positions < window)

        self._logits = run_step(self._model, tokens, position, allowed, self._cache)
        self._next_position = position + 1

    def _select(self, parents: Tensor) -> None:
        """Make the cache's rows those that the new states continue."""
        before = torch.arange(len(self._next_position), device=self._device)
        if not torch.equal(parents, before):
            self._cache.batch_select_indices(parents)
            self._key_positions = self._key_positions[parents]
            self._next_position = self._next_position[parents]

    def _run_prompts(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, Tensor]:
        """A cache with one row per prompt, and the logits of each one's first token."""
        layers: dict[int, list[tuple[Tensor, Tensor]]] = {}
        logits = []
        portions = _portions(prompts)
        positions = self._key_positions.clamp(min=0).split([len(some) for some in portions])
        for some, columns in zip(portions, positions, strict=True):
            packed, places = pack(some, self._device)
            aligned = places.gather(1, columns)
            cache = new_cache()
            logits.append(run_row(self._model, packed, cache, aligned[:, -1]))
            for index, keys, values in layers_of(cache):
                rows = [part[0][:, aligned].transpose(0, 1) for part in (keys, values)]
                layers.setdefault(index, []).append((rows[0], rows[1]))
        whole = roomy_cache()
        for index, parts in layers.items():
            keys, values = (torch.cat(side) for side in zip(*parts, strict=True))
            whole.update(keys, values, index)
        return whole, torch.cat(logits)


class PlainContinuation:
    """Each row alone with a cache of the model's own kind: slow, and exact for every model."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], completions: int) -> None:
        self._model = model
        self._device = str(next(model.parameters()).device)
        self._rows = [self._feed(None, ids) for ids in prompts for _ in range(completions)]

    def logits(self) -> tuple[Tensor, Tensor]:
        """Logits ``[N, V]`` of the next token of every live row, each a state of its own."""
        states = torch.arange(len(self._rows), device=self._device)
        return torch.stack([logits for _, logits in self._rows]), states

    def advance(self, rows: Tensor, token_ids: Tensor) -> None:
        """Keep some rows and run one more token of each."""
        self._rows = [
            self._feed(self._rows[row][0], [token])
            for row, token in zip(rows.tolist(), token_ids.tolist(), strict=True)
        ]

    def _feed(self, cache: Any, token_ids: Sequence[int]) -> tuple[Any, Tensor]:
        inputs = torch.tensor([list(token_ids)], device=self._device)
        output = self._model(input_ids=inputs, cache=cache, use_cache=True, logits_to_keep=1)
        return output.cache, output.logits[0, -1]


def _portions(prompts: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Consecutive prompts, together at most PROMPT_TOKENS_AT_ONCE unless one alone is longer."""
    portions: list[list[Sequence[int]]] = []
    used = 0
    for ids in prompts:
        if not portions or used + len(ids) > PROMPT_TOKENS_AT_ONCE:
            portions.append([])
            used = 0
        portions[-1].append(ids)
        used += len(ids)
    return portions
