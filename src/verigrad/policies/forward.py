"""Calling a Hugging Face causal language model with masks and positions of our own."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from verigrad.policies.packing import Packed, additive, may_attend

Window = int | None
WindowMask = Callable[[Window], Tensor]
"""Gives the boolean mask for a sliding window's size, or for none."""


def run_row(model: Any, packed: Packed, cache: Any, keep: Tensor) -> Tensor:
    """Run one row of tokens and apply the head to chosen places only.

    Args:
        model: the language model.
        packed: what is fed.
        cache: an empty one, which takes the row's keys and values; None keeps none.
        keep: int64, the places within the row that go through the head.

    Returns:
        Logits, ``[len(keep), V]``.
    """
    output = model(
        input_ids=packed.token_ids.unsqueeze(0),
        position_ids=packed.position.unsqueeze(0),
        attention_mask=_row_masks(model, packed),
        cache=cache,
        use_cache=cache is not None,
        logits_to_keep=keep,
    )
    logits: Tensor = output.logits[0]
    return logits


def run_step(
    model: Any, token_ids: Tensor, position: Tensor, allowed: WindowMask, cache: Any
) -> Tensor:
    """Run one more token of each of N rows, ``[N]`` each, and extend the cache: ``[N, V]``.

    Args:
        model: the language model.
        token_ids: one per row.
        position: of each token in its sequence.
        allowed: the mask by window: ``[N, keys]``.
        cache: keys and values so far, extended in place.
    """
    output = model(
        input_ids=token_ids.unsqueeze(1),
        position_ids=position.unsqueeze(1),
        attention_mask=attention_masks(model, allowed, batched=True),
        cache=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    logits: Tensor = output.logits[:, 0]
    return logits


def hidden_states(model: Any, packed: Packed, keep: Tensor) -> Tensor:
    """What the vocabulary head would see at chosen places of one row: ``[len(keep), H]``."""
    output = model.base_model(
        input_ids=packed.token_ids.unsqueeze(0),
        position_ids=packed.position.unsqueeze(0),
        attention_mask=_row_masks(model, packed),
        use_cache=False,
    )
    hidden: Tensor = output.last_hidden_state[0]
    # Not hidden[keep]: where a place repeats, the gradient of that is added up in any order.
    return hidden.index_select(0, keep)


def _row_masks(model: Any, packed: Packed) -> Any:
    return attention_masks(model, lambda window: may_attend(packed, window), batched=False)


@torch.no_grad()
def plain_head(model: Any) -> Any | None:
    """The vocabulary head, when the model's logits are its product with the last hidden states.

    None where the model does more to its logits (a cap, a scale), as a few tokens show.
    """
    head = model.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear):
        return None
    tokens = torch.arange(3, device=head.weight.device).unsqueeze(0) % head.out_features
    hidden = model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
    found = head(hidden)
    wanted = model(input_ids=tokens, use_cache=False).logits
    same = found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-5, atol=1e-5)
    return head if same else None


def attention_masks(model: Any, allowed: WindowMask, *, batched: bool) -> Any:
    """The additive mask, or one per kind of layer, as the model takes it."""
    config = model.config.get_text_config()

    def mask(window: Window) -> Tensor:
        values = additive(allowed(window), model.dtype)
        return values[:, None, None, :] if batched else values[None, None]

    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None)
    if kinds is None:
        return mask(window)
    windows = {"full_attention": None, "sliding_attention": window}
    return {kind: mask(windows[kind]) for kind in set(kinds)}


def new_cache() -> Any:
    """An empty cache that keeps every position, sliding windows included: masks do the rest."""
    from transformers import DynamicCache

    return DynamicCache()


def layers_of(cache: Any) -> list[tuple[int, Tensor, Tensor]]:
    """Index, keys and values ``[rows, heads, positions, width]`` of each layer that holds some."""
    return [
        (index, layer.keys, layer.values)
        for index, layer in enumerate(cache.layers)
        if layer.is_initialized
    ]


def plain_logits(model: Any, token_ids: list[int], first: int) -> Tensor:
    """Logits that predict the tokens from index ``first`` on, one sequence alone: ``[n, V]``.

    The ordinary forward pass, with nothing of ours in it: what the shared one is checked against.
    """
    device = next(model.parameters()).device
    inputs = torch.tensor([token_ids[:-1]], device=device)
    keep = torch.arange(first - 1, len(token_ids) - 1, device=device)
    logits: Tensor = model(input_ids=inputs, use_cache=False, logits_to_keep=keep).logits[0]
    return logits
