"""Families of models, as small ones with random weights: which share what sequences begin with."""

from typing import Any

import pytest
import torch
import transformers
from ragged import completion_of, group_of, largest, preset, relative_difference, scored
from tiny import tiny_tokenizer

from verigrad.batch import Batch, make_batch
from verigrad.engines import Draws, LocalEngine
from verigrad.hashing import Purpose
from verigrad.policies.causal_lm import CausalLM
from verigrad.types import Prompt, Sampling

pytestmark = pytest.mark.thorough

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
HEAD = {"head_dim": 8}
WINDOW = {"sliding_window": 8}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
SHARING: dict[str, dict[str, Any]] = {
    "Cohere": HEAD,
    "DeepseekV3": {
        "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
        "topk_group": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 32,
        "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 8, "n_shared_experts": 1,
    },
    "Exaone4": HEAD,
    "GPTNeoX": {},
    "Gemma2": HEAD | WINDOW,
    "Glm4": HEAD,
    "GptOss": HEAD | WINDOW | EXPERTS,
    "Granite": HEAD,
    "Mixtral": HEAD | EXPERTS,
    "OPT": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "Olmo2": HEAD,
    "Phi3": HEAD,
    "Qwen2": HEAD,
    "Qwen3Moe": HEAD | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    "SmolLM3": HEAD,
    "Starcoder2": HEAD | WINDOW,
}  # fmt: skip
ALONE: dict[str, dict[str, Any]] = {
    "Bloom": {"n_layer": 2, "n_head": 4},
    "Falcon": {},
    "FalconH1": {},
    "Lfm2": {"layer_types": ["conv", "full_attention"]},
    "Mamba2": {"num_heads": 8, "head_dim": 8, "expand": 2, "n_groups": 1, "state_size": 16},
    "StableLm": {},
}

# float32 alone has a grouped matrix product for experts, and some norms compute in it anyway.
WITHIN = 1e-5


def small(name: str) -> CausalLM:
    """A policy whose model has random weights; finds out by itself whether it shares."""
    sizes = (SHARING | ALONE)[name]
    config = getattr(transformers, f"{name}Config")(**SIZES | sizes)
    torch.manual_seed(0)
    return CausalLM(getattr(transformers, f"{name}ForCausalLM")(config), tiny_tokenizer())


def alike() -> Batch:
    """Two prompts that begin alike, and completions of which some do and two are the same."""
    start = list(range(5, 12))
    rows = [[*start, 12, 13, 14, 2], [*start, 30, 31, 2], [5, 6, 2], [*start, 12, 13, 14, 2]]
    prompts = [tuple(range(3, 20)), (*range(3, 12), 40, 41)]
    groups = [
        group_of(
            Prompt(problem_id=str(slot), token_ids=ids),
            [completion_of(row) for row in rows],
            [1.0, 0.0, 0.5, 0.2],
        )
        for slot, ids in enumerate(prompts)
    ]
    batch = make_batch(groups, preset("grpo"))
    assert batch is not None
    return batch


@pytest.mark.parametrize("name", SHARING | ALONE)
def test_log_probs_and_gradients_are_those_of_sequences_alone(name):
    policy = small(name)
    assert policy.shares_prompts is (name in SHARING)
    alone = CausalLM(policy.module, tiny_tokenizer(), shares_prompts=False)
    found, wanted = scored(policy, alike()), scored(alone, alike())
    assert largest(found.log_probs - wanted.log_probs) < WITHIN
    assert relative_difference(found.gradients, wanted.gradients) < WITHIN


@pytest.mark.parametrize("name", SHARING | ALONE)
def test_in_bfloat16_log_probs_and_gradients_are_near_those_of_float32(name):
    policy = small(name)
    wanted = scored(policy, alike())
    lowered = CausalLM(
        policy.module,
        tiny_tokenizer(),
        shares_prompts=policy.shares_prompts,
        precision="bfloat16",
    )
    assert lowered.precision == "bfloat16"
    found = scored(lowered, alike())
    assert 0 < largest(found.log_probs - wanted.log_probs) < 0.03
    assert 0 < relative_difference(found.gradients, wanted.gradients) < 0.03
    assert gap_of(lowered) < 0.01


@pytest.mark.parametrize("name", SHARING | ALONE)
def test_sampling_log_probs_are_those_of_sequences_alone(name):
    assert gap_of(small(name)) < WITHIN


def gap_of(policy: CausalLM) -> float:
    """Largest difference of sampling log-probs to those of the policy's sequences alone."""
    prompts = alike().prompts
    sampling = Sampling(max_new_tokens=10, stop_token_ids=(2,))
    draws = Draws(seed=0, purpose=Purpose.TRAIN, step=0)
    completions = LocalEngine(policy).generate(prompts, 6, sampling, draws)
    rewards = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    groups = [
        group_of(p, list(some), rewards) for p, some in zip(prompts, completions, strict=True)
    ]
    batch = make_batch(groups, preset("grpo"))
    assert batch is not None
    alone = CausalLM(policy.module, tiny_tokenizer(), shares_prompts=False)
    return largest(alone.score(batch, 1.0).log_probs - batch.sampling_log_probs)
