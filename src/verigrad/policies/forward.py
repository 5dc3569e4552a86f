"""Calling a Hugging Face causal language model with attention and positions of our own."""

from typing import Any

import torch
from torch import Tensor

from verigrad.batch import Tokens
from verigrad.policies.attention import Rule, own_attention, rule_masks


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


def plain_logits(model: Any, token_ids: list[int], first: int) -> Tensor:
    """Logits that predict the tokens from index ``first`` on, one sequence alone: ``[n, V]``.

    The ordinary forward pass, with nothing of ours in it: what the shared one is checked against.
    """
    device = next(model.parameters()).device
    inputs = torch.tensor([token_ids[:-1]], device=device)
    keep = torch.arange(first - 1, len(token_ids) - 1, device=device)
    logits: Tensor = model(input_ids=inputs, use_cache=False, logits_to_keep=keep).logits[0]
    return logits


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
