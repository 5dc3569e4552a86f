"""Generating from a causal language model: the prompt once, then one token per live row."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from verigrad.policies.attention import (
    Heads,
    KeysValues,
    PackedAttention,
    additive,
    shares_of,
)
from verigrad.policies.forward import logits_of
from verigrad.policies.keys import Columns, PromptKeys
from verigrad.policies.packing import distinct, pack
from verigrad.policies.windows import Window
from verigrad.types import Prompt

PROMPT_TOKENS_AT_ONCE = 512
"""Prompts are run side by side up to this many tokens, so that prefilling is bounded too."""


class SharedContinuation:
    """Rows that go on from their prompt's keys and values; see ``policies.base.Continuation``.

    A prompt's keys and values are there once. Completions that have been the same so far are one
    state, which is repeated when they part. States stand in the order of their prompts.
    """

    def __init__(self, model: Any, prompts: Sequence[Prompt], completions: int) -> None:
        self._model = model
        self._device = str(next(model.parameters()).device)
        self._prompts, self._logits = self._run_prompts(prompts)
        self._owner = torch.arange(len(prompts), device=self._device)
        self._columns = Columns(len(prompts), self._device)
        self._next_position = self._prompts.lengths
        self._states = self._owner.repeat_interleave(completions)

    def logits(self) -> tuple[Tensor, Tensor]:
        """Logits ``[S, V]`` of the next token in each state, and each live row's state."""
        return self._logits, self._states

    def admit(self, prompts: Sequence[Prompt], completions: int) -> None:
        """Start more rows, behind those that are there."""
        new = SharedContinuation(self._model, prompts, completions)
        self._owner = torch.cat([self._owner, new._owner + len(self._prompts.lengths)])
        self._states = torch.cat([self._states, new._states + len(self._logits)])
        self._prompts = self._prompts.joined(new._prompts)
        self._logits = torch.cat([self._logits, new._logits])
        self._next_position = torch.cat([self._next_position, new._next_position])
        self._columns.add_rows(len(prompts))

    def advance(self, rows: Tensor, token_ids: Tensor) -> None:
        """Keep some rows and run one more token of each, once where they go on alike."""
        parents, tokens, self._states = distinct(
            self._states[rows], token_ids, self._logits.shape[-1]
        )
        self._select(parents)
        self._columns.begin(self._next_position)
        rule = StepAttention(self._prompts, self._columns, self._owner, self._next_position)
        position = self._next_position.unsqueeze(1)
        self._logits = logits_of(self._model, tokens.unsqueeze(1), position, rule, 1)[:, 0]
        self._next_position = self._next_position + 1

    def _select(self, parents: Tensor) -> None:
        """Make the states those that the new ones continue, and forget prompts without any."""
        before = torch.arange(len(self._owner), device=self._device)
        if torch.equal(parents, before):
            return
        self._columns.select(parents)
        self._next_position = self._next_position[parents]
        alive, self._owner = torch.unique(self._owner[parents], return_inverse=True)
        if len(alive) < len(self._prompts.lengths):
            self._prompts = self._prompts.selected(alive)

    def _run_prompts(self, prompts: Sequence[Prompt]) -> tuple[PromptKeys, Tensor]:
        """Keys and values of each prompt, and the logits of each one's first token."""
        runs = [
            self._run_some(some) for some in _portions([prompt.token_ids for prompt in prompts])
        ]
        keys = runs[0][0]
        for more, _ in runs[1:]:
            keys = keys.joined(more)
        return keys, torch.cat([logits for _, logits in runs])

    def _run_some(self, prompts: Sequence[Sequence[int]]) -> tuple[PromptKeys, Tensor]:
        packed, places = pack(prompts, self._device)
        lengths = torch.tensor([len(ids) for ids in prompts], device=self._device)
        kept: dict[int, KeysValues] = {}
        rule = PackedAttention(packed, kept=kept)
        last = places.gather(1, lengths.unsqueeze(1) - 1).squeeze(1)
        logits = logits_of(
            self._model, packed.token_ids.unsqueeze(0), packed.position.unsqueeze(0), rule, last
        )
        return PromptKeys.from_row(kept, places, lengths), logits[0]


class StepAttention:
    """One new token of each state attends to its prompt, to its completion so far, and to itself.

    The states of a prompt ask its keys together, so that these are read once.
    """

    def __init__(
        self, prompts: PromptKeys, columns: Columns, owner: Tensor, position: Tensor
    ) -> None:
        """Prepare for a step.

        Args:
            prompts: P of them.
            columns: of S states; takes the new token's keys and values.
            owner: ``[S]``, ascending: the prompt of each state.
            position: ``[S]``, of the new token in its sequence.
        """
        self._prompts = prompts
        self._columns = columns
        self._position = position
        self._key_positions = torch.cat([prompts.positions[owner], columns.positions], dim=1)
        counts = torch.bincount(owner, minlength=len(prompts.lengths))
        self._most = int(counts.max())
        rank = torch.arange(len(owner), device=owner.device) - (counts.cumsum(0) - counts)[owner]
        even = len(owner) == self._most * len(counts)
        self._place = None if even else owner * self._most + rank
        self._masks: dict[Window, Tensor] = {}

    def __call__(self, layer: int, heads: Heads, window: Window) -> Tensor:
        """Attend; see ``policies.attention.Rule``."""
        # Layers in bfloat16 train in kernels that round the factors, and multiply in float32.
        kind = heads.value.dtype
        exact = torch.promote_types(kind, torch.float32)
        query, key, value = (
            side.to(kind).to(exact) for side in (heads.query, heads.key, heads.value)
        )
        prompt_keys, prompt_values = self._prompts.layers[layer]
        with torch.autocast(query.device.type, enabled=False):
            keys, values = self._columns.put(layer, key, value)
            states, count = query.shape[:2]
            grouped = query.view(states, keys.shape[1], -1, query.shape[-1])
            of_prompt = self._by_prompt(grouped, prompt_keys.transpose(2, 3))
            scores = torch.cat([of_prompt, grouped @ keys.transpose(2, 3)], dim=-1)
            by_head = scores.view(states, count, 1, -1)
            shares = shares_of(by_head, self._mask(window, exact), heads).view(scores.shape)
            if kind != exact:
                # They round before they normalise, when the largest is 1.
                most = shares.amax(dim=-1, keepdim=True)
                shares = (shares / most).to(kind).to(exact) * most
            of_prompt, of_own = shares.split([prompt_keys.shape[2], keys.shape[2]], dim=-1)
            attended: Tensor = self._by_prompt(of_prompt, prompt_values) + of_own @ values
        return attended.reshape(states, count, 1, -1)

    def _by_prompt(self, rows: Tensor, table: Tensor) -> Tensor:
        """Each state's product with its prompt's matrix: ``[S, h, g, x] @ [P, h, x, y]``."""
        prompts, heads, inner, _ = table.shape
        group = rows.shape[2]
        if self._place is not None:
            padded = rows.new_zeros(prompts * self._most, heads, group, inner)
            rows = padded.index_copy_(0, self._place, rows)
        asked = rows.view(prompts, self._most, heads, group, inner).transpose(1, 2)
        found = asked.reshape(prompts, heads, -1, inner) @ table
        found = found.view(prompts, heads, self._most, group, -1).transpose(1, 2)
        found = found.reshape(-1, heads, group, table.shape[-1])
        return found if self._place is None else found[self._place]

    def _mask(self, window: Window, dtype: torch.dtype) -> Tensor:
        """``[S, 1, 1, keys]``: a key at a negative position is none."""
        if window not in self._masks:
            allowed = self._key_positions >= 0
            if window is not None:
                allowed &= self._position.unsqueeze(1) - self._key_positions < window
            self._masks[window] = additive(allowed, dtype)[:, None, None]
        return self._masks[window]


class PlainContinuation:
    """Each row alone with a cache of the model's own kind: slow."""

    def __init__(self, model: Any, prompts: Sequence[Prompt], completions: int) -> None:
        self._model = model
        self._device = str(next(model.parameters()).device)
        self._rows: list[tuple[Any, Tensor]] = []
        self.admit(prompts, completions)

    def logits(self) -> tuple[Tensor, Tensor]:
        """Logits ``[N, V]`` of the next token of every live row, each a state of its own."""
        states = torch.arange(len(self._rows), device=self._device)
        return torch.stack([logits for _, logits in self._rows]), states

    def admit(self, prompts: Sequence[Prompt], completions: int) -> None:
        """Start more rows, behind those that are there."""
        self._rows += [
            self._feed(None, prompt.token_ids) for prompt in prompts for _ in range(completions)
        ]

    def advance(self, rows: Tensor, token_ids: Tensor) -> None:
        """Keep some rows and run one more token of each."""
        self._rows = [
            self._feed(self._rows[row][0], [token])
            for row, token in zip(rows.tolist(), token_ids.tolist(), strict=True)
        ]

    def _feed(self, cache: Any, token_ids: Sequence[int]) -> tuple[Any, Tensor]:
        """What a row keeps once it has run some more tokens, and the logits of the next."""
        inputs = torch.tensor([list(token_ids)], device=self._device)
        output = self._model(input_ids=inputs, cache=cache, use_cache=True, logits_to_keep=1)
        return output.cache, output.logits[0, -1]


class WholeContinuation(PlainContinuation):
    """Each row alone, and all of it again for every token: for models without such a cache."""

    def _feed(self, before: Any, token_ids: Sequence[int]) -> tuple[Any, Tensor]:
        ids = [*(before or []), *token_ids]
        inputs = torch.tensor([ids], device=self._device)
        return ids, self._model(input_ids=inputs, use_cache=False, logits_to_keep=1).logits[0, -1]


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
