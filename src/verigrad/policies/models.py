"""From a model's name to a model and its tokenizer, and from a problem to its tokens.

A name is an alias ("smollm2-135m"), a folder, or a hub id ``owner/name``. A hub model is fetched
into the hub's own cache first, so that all three are read, and refused, in the same way: from a
folder, weights from safetensors only, without running code that the folder brings along.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verigrad.config.checks import one_of
from verigrad.config.schema import MODELS
from verigrad.errors import ModelError
from verigrad.policies.bundled import BUNDLED, converted_folder, ensure_converted, read_config
from verigrad.policies.folders import (
    check_causal,
    fetch,
    one_line,
    read_config_file,
    read_model,
    read_tokenizer,
    readable_errors,
)
from verigrad.types import Message

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedModel:
    """A model ready to train, and the tokenizer that belongs to it."""

    model: "PreTrainedModel"
    """Float32, in evaluation mode, on the device asked for."""

    tokenizer: "PreTrainedTokenizerBase"
    """May be without a chat template and without a padding token."""

    source: str
    """The folder or hub id it came from."""


def locate_model(name: str) -> str:
    """Say where a model is: an absolute folder, or a hub id. Asks no network.

    An alias is converted into the user's cache the first time.

    Raises:
        ModelError: the name is neither alias, nor folder, nor of the form ``owner/name``.
    """
    if name in BUNDLED:
        return str(ensure_converted(name))
    path = Path(os.path.expanduser(name))
    if name and os.path.isdir(path):
        return str(path.resolve())
    if HUB_ID.fullmatch(name) and not os.path.exists(path):
        return name
    found = "is a file" if os.path.isfile(path) else "is neither an alias nor a folder that exists"
    raise ModelError(
        f"model {name!r} {found}; {one_of(name, MODELS)}, a folder, or a hub id owner/name"
    )


def load_model(name: str, *, device: str) -> LoadedModel:
    """Load a causal language model and its tokenizer.

    Args:
        name: alias, folder or hub id.
        device: where the weights go, for example "cpu" or "cuda:0".

    Raises:
        ModelError: the model cannot be found, or its folder lacks a configuration, a tokenizer or
            complete safetensors weights, or holds no causal language model.
    """
    source = locate_model(name)
    folder = fetch(source)
    tokenizer = read_tokenizer(folder)
    model = read_model(folder)
    return LoadedModel(model=model.to(device).eval(), tokenizer=tokenizer, source=source)


def load_tokenizer(name: str) -> "PreTrainedTokenizerBase":
    """Load a model's tokenizer without its weights; an alias is converted the first time.

    Raises:
        ModelError: the model cannot be found, or has no tokenizer that can be read.
    """
    files = ("*.json", "*.jinja", "*.model", "vocab.txt", "merges.txt")
    return read_tokenizer(fetch(locate_model(name), files=files))


def load_model_config(name: str) -> "PretrainedConfig":
    """Load a model's configuration without its weights, and without converting an alias.

    Raises:
        ModelError: the model cannot be found, or has no readable configuration.
    """
    if name in BUNDLED and not converted_folder(name).is_dir():
        return read_config(name)
    return read_config_file(fetch(locate_model(name), files=("config.json",)))


def count_parameters(config: "PretrainedConfig") -> int:
    """Count a model's parameters, tied ones once, without making any of them.

    Raises:
        ModelError: the configuration is not that of a causal language model.
    """
    import torch
    from transformers import AutoModelForCausalLM

    check_causal(config)
    with readable_errors(config.name_or_path), torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    return sum(parameter.numel() for parameter in model.parameters())


def stop_token_ids(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase"
) -> tuple[int, ...]:
    """Every token that ends a completion, ascending.

    The union of what the generation configuration, the model's configuration and the tokenizer
    name: a chat model often ends its turn with another token than its text. Empty when none of
    them names one; completions are then all truncated at the length limit.
    """
    text_config = model.config.get_text_config()
    named = [getattr(text_config, "eos_token_id", None), tokenizer.eos_token_id]
    if model.generation_config is not None:
        named.append(model.generation_config.eos_token_id)
    ids: set[int] = set()
    for entry in named:
        ids.update([entry] if isinstance(entry, int) else entry or [])
    return tuple(sorted(ids))


def render(
    tokenizer: "PreTrainedTokenizerBase", prompt: str | Sequence[Message]
) -> tuple[int, ...]:
    """Turn a problem's prompt into the tokens the policy is conditioned on.

    With a chat template, text becomes one user turn, and the assistant's turn is opened at the
    end. Without one, text is encoded as it is (with the token that the tokenizer puts before a
    text, if any), and the contents of messages are joined by newlines.

    Raises:
        ModelError: the chat template refuses the messages, or no token comes out.
    """
    if tokenizer.chat_template is None:
        text = prompt if isinstance(prompt, str) else "\n".join(turn["content"] for turn in prompt)
        ids = tokenizer.encode(text)
    else:
        turns = [Message(role="user", content=prompt)] if isinstance(prompt, str) else list(prompt)
        ids = _apply_template(tokenizer, turns)
    if not ids:
        raise ModelError(
            f"prompt {prompt!r} becomes no token at all, so there is nothing to continue; "
            "write some text"
        )
    return tuple(ids)


def _apply_template(tokenizer: "PreTrainedTokenizerBase", turns: list[Message]) -> list[int]:
    from jinja2 import TemplateError

    # A template is a program, which fails as programs do.
    faults = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError)
    try:
        ids: list[int] = tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=True, return_dict=False
        )
    except (TemplateError, *faults) as error:
        roles = ", ".join(turn["role"] for turn in turns)
        raise ModelError(
            f"the chat template of {tokenizer.name_or_path} refuses a prompt of roles {roles}: "
            f"{one_line(error)}; use roles it knows, or plain text"
        ) from error
    return ids
