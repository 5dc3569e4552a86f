"""Activation checkpointing: layers keep their inputs only, and run again when gradients are wanted.

The library's own switch works in training mode alone, in which dropout would make the policy that
is trained another one than the policy that sampled; and it drops the cache without a word. Here a
pass of training has no cache to drop, and the model stays in evaluation mode.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from verigrad.errors import ModelError
from verigrad.policies.attention import attention_of, using_attention


def recompute_layers(model: Any) -> None:
    """Make every layer of a model compute its activations again in the backward pass.

    What comes out is the same to the bit; a pass keeps about the activations of one layer, and
    takes about a third longer.

    Args:
        model: a transformers model whose layers can be run again.

    Raises:
        ModelError: it has no such layers.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [
        module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)
    ]
    if not layers:
        raise ModelError(
            f"{type(model).__name__} has no layers that can be run again; leave "
            "model.activation_checkpointing out"
        )
    for layer in layers:
        layer.forward = partial(_run, model, layer.forward)


def _run(model: Any, forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*arguments, **named)
    attention = attention_of(model)

    def again(*arguments: Any, **named: Any) -> Any:
        # The backward pass comes when the model has its ordinary attention back.
        with using_attention(model, attention):
            return forward(*arguments, **named)

    # Nothing in a layer is random in evaluation mode, so there is no random state to keep.
    return checkpoint(again, *arguments, use_reentrant=False, preserve_rng_state=False, **named)
