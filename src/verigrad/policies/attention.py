"""Attention of our own in the layers of a Hugging Face model.

The library lets a function be registered that its attention layers call with queries, keys and
values. Ours asks the mask what to do: instead of a table of who attends to whom it is a
``RuleMask``, which carries a rule for the whole forward pass. So what sequences have in common can
stand once, in training (``PackedAttention``) and in generating (``policies.continuation``), without
a table of all pairs of tokens and without a cache of the library's.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from verigrad.policies.packing import Block, Packed, blocks_of, may_attend
from verigrad.policies.windows import Window, windows_of

NAME = "verigrad"
KeysValues = tuple[Tensor, Tensor]
"""``[1 or S, heads of keys, tokens, width]`` each."""


@dataclass(frozen=True, kw_only=True)
class Heads:
    """What one attention layer attends with."""

    query: Tensor
    """``[rows, heads, tokens, width]``."""

    key: Tensor
    """``[rows, heads of keys, tokens, width]``: each serves the same number of heads."""

    value: Tensor
    """As ``key``; its width may be another."""

    scaling: float
    """Times the product of query and key."""

    softcap: float | None
    """Bounds the scores s as ``softcap * tanh(s / softcap)`` (Gemma 2); None for no bound."""

    sinks: Tensor | None
    """``[heads]``: the score of a key without a value (GPT-OSS); None for none."""


class Rule(Protocol):
    """What the attention layers of one forward pass do."""

    def __call__(self, layer: int, heads: Heads, window: Window) -> Tensor:
        """Attend: ``[rows, heads, tokens, width]``.

        Args:
            layer: its index.
            heads: what it attends with.
            window: how many positions back it reaches, its own included; None for all.
        """
        ...


class RuleMask(Tensor):
    """Stands where a model expects its attention mask; says the rule and the layer's window."""

    rule: Rule
    window: Window


def rule_masks(model: Any, rule: Rule) -> Any:
    """One mask, or one per kind of layer, as the model takes it."""

    def mask(window: Window) -> RuleMask:
        carrier = torch.zeros(1, 1, 1, 1, dtype=model.dtype, device=model.device)
        found = carrier.as_subclass(RuleMask)
        found.rule, found.window = rule, window
        return found

    windows = windows_of(model)
    if not isinstance(windows, dict):
        return mask(windows)
    return {kind: mask(window) for kind, window in windows.items()}


@contextmanager
def own_attention(model: Any) -> Iterator[None]:
    """Make the model's layers call our function, which takes a ``RuleMask``, for a while."""
    _register()
    with using_attention(model, NAME):
        yield


@contextmanager
def using_attention(model: Any, name: str | None) -> Iterator[None]:
    """Make the model's layers use an attention, as :func:`attention_of` names it, for a while."""
    before = attention_of(model)
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before


def attention_of(model: Any) -> str | None:
    """The attention that the model's layers use now."""
    name: str | None = model.config._attn_implementation
    return name


@cache
def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _by_rule)


def _by_rule(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: RuleMask,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What an attention layer calls; the names are the library's."""
    del others
    heads = Heads(
        query=query,
        key=key,
        value=value,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=softcap,
        sinks=s_aux,
    )
    attended = attention_mask.rule(module.layer_idx, heads, attention_mask.window)
    return attended.transpose(1, 2).contiguous(), None


class Prefix(NamedTuple):
    """What stands before every token of a row: keys and values at positions 0 to ``tokens - 1``."""

    tokens: int
    layers: Mapping[int, KeysValues]


class PackedAttention:
    """Tokens laid end to end attend to those of their own sequence, and to a prefix of all.

    The row is cut where it branches, and each block attends to itself and to what it continues, so
    that completions of a prompt cost nothing for each other.
    """

    def __init__(
        self,
        packed: Packed,
        *,
        prefix: Prefix | None = None,
        kept: dict[int, KeysValues] | None = None,
    ) -> None:
        """Prepare for a row.

        Args:
            packed: the row.
            prefix: what every sequence of it continues; its positions count on from there.
            kept: takes the keys and values of each layer; None keeps none.
        """
        self._packed = packed
        self._prefix = prefix
        self._kept = kept
        self._blocks = blocks_of(packed.end.tolist())
        self._sizes = [block.stop - block.start for block in self._blocks]
        self._masks: dict[tuple[int, Window], Tensor | None] = {}

    def __call__(self, layer: int, heads: Heads, window: Window) -> Tensor:
        """Attend block by block; see :class:`Rule`."""
        if self._kept is not None:
            self._kept[layer] = heads.key, heads.value
        queries, keys, values = (
            side.split(self._sizes, dim=2) for side in (heads.query, heads.key, heads.value)
        )
        before = (
            [[], []] if self._prefix is None else [[side] for side in self._prefix.layers[layer]]
        )
        attended = []
        for number, block in enumerate(self._blocks):
            seen = (*block.before, number)
            attended.append(
                attend(
                    queries[number],
                    _joined([*before[0], *(keys[index] for index in seen)]),
                    _joined([*before[1], *(values[index] for index in seen)]),
                    self._mask(number, block, window, heads.query.dtype),
                    heads,
                )
            )
        return _joined(attended)

    def _mask(self, number: int, block: Block, window: Window, dtype: torch.dtype) -> Tensor | None:
        """What is added to the scores of a block; None where every token sees all before it."""
        if (number, window) not in self._masks:
            tokens = 0 if self._prefix is None else self._prefix.tokens
            before = [self._blocks[index] for index in block.before]
            mask = may_attend(self._packed, block, before, window, tokens)
            self._masks[number, window] = None if mask is None else additive(mask, dtype)
        return self._masks[number, window]


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, heads: Heads) -> Tensor:
    """Attention of some tokens: ``[rows, heads, queries, width of values]``.

    Args:
        query: ``[rows, heads, queries, width]``.
        key: ``[rows, heads of keys, keys, width]``.
        value: as ``key``.
        mask: added to the scores, ``[queries, keys]`` or with rows and heads before; None where
            queries and keys are the same tokens in order and each sees those up to its own.
        heads: whose scaling, bound and sinks are used.
    """
    if heads.softcap is None and heads.sinks is None:
        shared = key.shape[1] != query.shape[1]
        if shared and not query.is_cpu:
            # Elsewhere the fast kernels take a mask only with as many keys as queries.
            key, value = (side.repeat_interleave(query.shape[1] // key.shape[1], 1)
                          for side in (key, value))  # fmt: skip
        return scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=heads.scaling,
            enable_gqa=shared and query.is_cpu,
        )  # fmt: skip
    rows, count, tokens, width = query.shape
    grouped = query.reshape(rows, key.shape[1], -1, width)
    scores = (grouped @ key.transpose(2, 3)).view(rows, count, tokens, -1)
    if mask is None:
        mask = additive(torch.ones(tokens, tokens, device=query.device).tril().bool(), query.dtype)
    shares = shares_of(scores, mask, heads)
    return (shares.reshape(rows, key.shape[1], -1, key.shape[2]) @ value).view(
        rows, count, tokens, -1
    )


def shares_of(scores: Tensor, mask: Tensor, heads: Heads) -> Tensor:
    """The share of each key: ``[rows, heads, queries, keys]``, at most 1 in sum.

    Args:
        scores: products of queries and keys, of the same shape.
        mask: added once they are scaled and bounded.
        heads: how to.
    """
    scores = scores * heads.scaling
    if heads.softcap is not None:
        scores = heads.softcap * (scores / heads.softcap).tanh()
    scores = scores + mask
    if heads.sinks is None:
        return scores.softmax(dim=-1)
    sinks = heads.sinks.view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, sinks], dim=-1).softmax(dim=-1)[..., :-1]


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where attention is allowed and the lowest number elsewhere, as attention adds it."""
    lowest = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=allowed.device)
    return torch.where(allowed, torch.zeros_like(lowest), lowest)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)
