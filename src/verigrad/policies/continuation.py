"""Generating from a causal language model: the prompt once, then one token per live row."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from verigrad.policies.forward import layers_of, new_cache, run, within
from verigrad.policies.packing import PROMPT, Packed, pack_prompts
from verigrad.policies.roomy import roomy_cache

PROMPT_TOKENS_AT_ONCE = 512
"""Prompts are run side by side up to this many tokens, beyond which attention grows costly."""


class SharedContinuation:
    """Rows that go on from their prompt's keys and values; see ``policies.base.Continuation``."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]], completions: int) -> None:
        self._model = model
        self._device = str(next(model.parameters()).device)
        lengths = torch.tensor([len(ids) for ids in prompts], device=self._device)
        width = int(lengths.max())
        self._cache, first = self._run_prompts(prompts, width, completions)
        self._logits = first
        # Prompts stand right-aligned; a key at a negative position is padding.
        columns = torch.arange(width, device=self._device)
        positions = columns - (width - lengths).unsqueeze(1)
        self._key_positions = positions.repeat_interleave(completions, dim=0)
        self._next_position = lengths.repeat_interleave(completions)

    def logits(self) -> Tensor:
        """Logits ``[N, V]`` of the next token of every live row."""
        return self._logits

    def advance(self, rows: Tensor, token_ids: Tensor) -> None:
        """Keep some rows and run one more token of each."""
        if len(rows) < len(self._next_position):
            self._cache.batch_select_indices(rows)
            self._key_positions = self._key_positions[rows]
            self._next_position = self._next_position[rows]
        position = self._next_position
        self._key_positions = torch.cat([self._key_positions, position.unsqueeze(1)], dim=1)

        def allowed(window: int | None) -> Tensor:
            seen = self._key_positions >= 0
            if window is None:
                return seen
            return seen & (position.unsqueeze(1) - self._key_positions < window)

        tokens = Packed(token_ids=token_ids, group=rows, row=rows, position=position)
        last = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._logits = run(self._model, tokens, allowed, self._cache, last, batched=True)
        self._next_position = position + 1

    def _run_prompts(
        self, prompts: Sequence[Sequence[int]], width: int, completions: int
    ) -> tuple[Any, Tensor]:
        """A cache with K rows per prompt, and the logits of each row's first token."""
        layers: dict[int, list[tuple[Tensor, Tensor]]] = {}
        logits = []
        for some in _portions(prompts):
            packed = pack_prompts(some, self._device)
            ends = last_positions(packed, len(some))
            cache = new_cache()
            keep = ends.repeat_interleave(completions)
            logits.append(run(self._model, packed, within(packed), cache, keep, batched=False))
            for index, keys, values in layers_of(cache):
                rows = [_aligned(part, some, width, completions) for part in (keys, values)]
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

    def logits(self) -> Tensor:
        """Logits ``[N, V]`` of the next token of every live row."""
        return torch.stack([logits for _, logits in self._rows])

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


def last_positions(packed: Packed, prompts: int) -> Tensor:
    """``[P]``: where each prompt's last token stands in the row."""
    counts = torch.bincount(packed.group[packed.row == PROMPT], minlength=prompts)
    return counts.cumsum(0) - 1


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


def _aligned(
    values: Tensor, prompts: Sequence[Sequence[int]], width: int, completions: int
) -> Tensor:
    """Split ``[1, heads, tokens, d]`` by prompt, align right to ``width``, repeat K times."""
    parts = values[0].split([len(ids) for ids in prompts], dim=1)
    rows = [torch.nn.functional.pad(part, (0, 0, width - part.shape[1], 0)) for part in parts]
    return torch.stack(rows).repeat_interleave(completions, dim=0)
