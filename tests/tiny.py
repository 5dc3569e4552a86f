"""Tiny models of real architectures and a tokenizer, built in the test itself.

The models have two layers, 32 hidden units, 64 tokens and random weights that are large enough for
their predictions to differ from token to token.
"""

import string
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from verigrad.policies.causal_lm import CausalLM

KINDS = ("llama", "qwen3", "gemma3", "gpt2")
"""Rotary, rotary with normed queries, alternating sliding windows, and learned positions."""

VOCABULARY = 64
WINDOW = 4
"""Tokens that a sliding window reaches, its own included."""

POSITIONS = 512

PAD, START, STOP, TURN, UNKNOWN, TWELVE = 0, 1, 2, 3, 4, 5
SPECIAL = ["<pad>", "<s>", "</s>", "<turn>", "<unk>"]
CHARACTERS = string.digits + string.ascii_lowercase + " \n.,?!+-*/=()'\":;<>_|%"
WORDS = [*SPECIAL, "12", *CHARACTERS]
TEMPLATE = (
    "{{ bos_token }}{% for turn in messages %}<turn>{{ turn['role'] }}\n{{ turn['content'] }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<turn>assistant\n{% endif %}"
)


def tiny_config(kind: str, **changes: Any) -> PreTrainedConfig:
    """The configuration of one of KINDS, or of "mistral", whose layers all have a window."""
    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": PAD,
        "bos_token_id": START,
        "eos_token_id": STOP,
    }
    if kind == "llama":
        return LlamaConfig(**common | changes)
    if kind == "qwen3":
        return Qwen3Config(**common | changes)
    if kind == "mistral":
        return MistralConfig(**common | {"sliding_window": WINDOW} | changes)
    if kind == "gemma3":
        own = {
            "sliding_window": WINDOW,
            "layer_types": ["sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 8,
        }
        return Gemma3TextConfig(**common | own | changes)
    assert kind == "gpt2"
    own = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return GPT2Config(n_positions=POSITIONS, bos_token_id=START, eos_token_id=STOP, **own | changes)


def tiny_model(
    kind: str = "llama",
    *,
    dtype: torch.dtype = torch.float32,
    attention: str = "sdpa",
    seed: int = 0,
    **changes: Any,
) -> PreTrainedModel:
    """A model of one kind with random weights, norms and biases included."""
    config = tiny_config(kind, **changes)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    return randomised(model, seed)


def randomised(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """The model in evaluation mode with noise on every parameter, the same for every dtype."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_((1.0 if _is_gain(parameter) else 0.0) + 0.2 * noise)
    return model.eval()


def _is_gain(parameter: Tensor) -> bool:
    return parameter.dim() == 1 and bool((parameter == 1).all())


def keep_dtype_in_norms(model: PreTrainedModel) -> PreTrainedModel:
    """Make every RMSNorm compute in the dtype of its input; the library's own computes in float32.

    Gemma's norms hold their gain less 1.
    """
    for module in model.modules():
        name = type(module).__name__
        if name.endswith("RMSNorm"):
            module.forward = _norm(module, 1.0 if name.startswith("Gemma") else 0.0)
    return model


def _norm(module: Any, shift: float) -> Any:
    eps = module.eps if hasattr(module, "eps") else module.variance_epsilon

    def forward(values: Tensor) -> Tensor:
        scale = torch.rsqrt(values.square().mean(-1, keepdim=True) + eps)
        return values * scale * (module.weight + shift)

    return forward


def tiny_tokenizer(*, template: bool = True, pad: bool = True) -> PreTrainedTokenizerFast:
    """One token per character, in lower case, but "12" is one token.

    So the tokens "1", "2" decode to a text that encodes to another token.
    """
    assert len(WORDS) == VOCABULARY
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[("1", "2")], unk_token="<unk>"))
    core.normalizer = normalizers.Lowercase()
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>" if pad else None,
        additional_special_tokens=["<turn>"],
        chat_template=TEMPLATE if template else None,
    )


def save_tiny_model(
    folder: Path, *, kind: str = "llama", template: bool = True, pad: bool = True, **changes: Any
) -> Path:
    """Write a folder that ``load_model`` reads: weights, configuration and tokenizer."""
    tiny_model(kind, **changes).save_pretrained(folder)
    tiny_tokenizer(template=template, pad=pad).save_pretrained(folder)
    return folder


def tiny_policy(
    kind: str = "llama", *, shares_prompts: bool | None = True, **changes: Any
) -> CausalLM:
    """A policy around a tiny model."""
    return CausalLM(tiny_model(kind, **changes), tiny_tokenizer(), shares_prompts=shares_prompts)


def exact_policy(kind: str, *, shares_prompts: bool = True) -> CausalLM:
    """A policy that computes in float64 throughout."""
    model = keep_dtype_in_norms(tiny_model(kind, dtype=torch.float64))
    return CausalLM(model, tiny_tokenizer(), shares_prompts=shares_prompts)


def constant_policy(logits: list[float]) -> CausalLM:
    """A policy whose next token has these logits, whatever came before."""
    model = tiny_model("gpt2", vocab_size=len(logits), tie_word_embeddings=False)
    with torch.no_grad():
        model.transformer.ln_f.weight.zero_()
        model.transformer.ln_f.bias.zero_()
        model.transformer.ln_f.bias[0] = 1.0
        model.lm_head.weight[:, 0] = torch.tensor(logits)
    return CausalLM(model, tiny_tokenizer(), shares_prompts=True)
