"""Calling a Hugging Face causal language model with attention and positions of our own."""

from typing import Any

import torch
from torch import Tensor

from verigrad.batch import Tokens
from verigrad.policies.attention import Rule, own_attention, rule_masks

SAME = 1e-5
"""Largest difference of hidden states, relative to them, that rounding may make."""


def hidden_states(
    model: Any, token_ids: Tensor, position: Tensor, rule: Rule, keep: Tensor
) -> Tensor:
    """What the vocabulary head would see.

    Args:
        model: the language model.
        token_ids: ``[rows, tokens]`` int64.
        position: of each token in its sequence, of the same shape.
        rule: what its attention layers do.
        keep: int64, the tokens whose states are wanted.

    Returns:
        ``[rows, len(keep), H]``.
    """
    masks = rule_masks(model, rule)
    with own_attention(model):
        hidden: Tensor = model.base_model(
            input_ids=token_ids,
            position_ids=position,
            attention_mask=masks,
            use_cache=False,
        ).last_hidden_state
    # Not hidden[:, keep]: where a place repeats, the gradient of that is added up in any order.
    return hidden.index_select(1, keep)


def logits_of(
    model: Any, token_ids: Tensor, position: Tensor, rule: Rule, keep: Tensor | int
) -> Tensor:
    """Logits ``[rows, tokens kept, V]``; as :func:`hidden_states`, the head included.

    Args:
        model: the language model.
        token_ids: ``[rows, tokens]`` int64.
        position: of each token in its sequence.
        rule: what its attention layers do.
        keep: int64, the tokens whose logits are wanted, or how many of the last.
    """
    masks = rule_masks(model, rule)
    with own_attention(model):
        logits: Tensor = model(
            input_ids=token_ids,
            position_ids=position,
            attention_mask=masks,
            use_cache=False,
            logits_to_keep=keep,
        ).logits
    return logits


@torch.no_grad()
def plain_head(model: Any) -> Any | None:
    """The vocabulary head, when the model's logits are its product with the last hidden states.

    None where the model does more to its states or to its logits (a cap, a scale). A few tokens
    show the former; the latter is seen on numbers that are put in the place of the logits, because
    those of a model that has not learnt yet may be too small for a cap to show.
    """
    head = model.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear):
        return None
    tokens = torch.arange(3, device=head.weight.device).unsqueeze(0) % head.out_features
    states = getattr(model.base_model(input_ids=tokens, use_cache=False), "last_hidden_state", None)
    count = tokens.numel() * head.out_features
    steps = torch.arange(count, device=tokens.device) - count // 2
    large = (16 * steps).view(*tokens.shape, -1).to(head.weight.dtype)
    seen: list[Tensor] = []

    def put(_: Any, inputs: tuple[Tensor, ...], __: Tensor) -> Tensor:
        seen.append(inputs[0])
        return large

    hook = head.register_forward_hook(put)
    try:
        logits = model(input_ids=tokens, use_cache=False).logits
    finally:
        hook.remove()
    plain = (
        isinstance(states, Tensor)
        and [some.shape for some in seen] == [states.shape]
        and bool((seen[0] - states).abs().max() <= SAME * states.abs().max())
        and torch.equal(logits, large.to(logits.dtype))
    )
    return head if plain else None


def plain_logits(model: Any, token_ids: list[int], first: int) -> Tensor:
    """Logits that predict the tokens from index ``first`` on, one sequence alone: ``[n, V]``.

    The ordinary forward pass, with nothing of ours in it: what the shared one is checked against.
    """
    device = next(model.parameters()).device
    inputs = torch.tensor([token_ids[:-1]], device=device)
    keep = torch.arange(first - 1, len(token_ids) - 1, device=device)
    logits: Tensor = model(input_ids=inputs, use_cache=False, logits_to_keep=keep).logits[0]
    # Some models give all of them, whatever is asked for.
    return logits if len(logits) == len(keep) else logits[keep]


def separate_logits(model: Any, batch: Tokens) -> Tensor:
    """Logits that predict the batch's trained tokens, row by row: ``[mask.sum(), V]``.

    Every sequence runs alone, prompt included.
    """
    parts = []
    for row, (group, length) in enumerate(
        zip(batch.group_index.tolist(), batch.lengths.tolist(), strict=True)
    ):
        prompt = list(batch.prompts[group].token_ids)
        if length:
            completion = batch.token_ids[row, :length].tolist()
            logits = plain_logits(model, prompt + completion, len(prompt))
            parts.append(logits[batch.mask[row, :length]])
    return torch.cat(parts)
