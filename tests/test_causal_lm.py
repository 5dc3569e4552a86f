"""The causal language model as a policy: temperature, padding, prompts, and what it saves."""

import math
from dataclasses import replace

import pytest
import torch
from ragged import largest, ragged_batch, relative_difference, scored
from tiny import (
    KINDS,
    START,
    STOP,
    TURN,
    constant_policy,
    exact_policy,
    randomised,
    tiny_model,
    tiny_policy,
    tiny_tokenizer,
)
from tokenizers import processors
from torch import Tensor
from torch.nn.functional import pad
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma3nForCausalLM,
    Gemma3nTextConfig,
)

from verigrad.batch import select_rows
from verigrad.policies.causal_lm import CausalLM
from verigrad.types import Message, Problem, Prompt

# Temperature


@pytest.mark.parametrize(
    ("temperature", "first", "second"),
    [(1.0, 0.2, 0.8), (2.0, 1 / 3, 2 / 3), (0.5, 1 / 17, 16 / 17)],
)
def test_log_probs_at_a_temperature_are_those_of_the_tempered_logits(temperature, first, second):
    """Logits 0 and ln 4: at temperature 2 the odds of 4 become 2."""
    policy = constant_policy([0.0, math.log(4)])
    batch = select_rows(ragged_batch(), [0])
    ids = torch.tensor([[0, 1, 1]])
    prompt = Prompt(problem_id="p", token_ids=(0, 1))
    batch = replace(batch, token_ids=ids, prompts=(prompt,))
    scores = policy.score(batch, temperature)
    wanted = [math.log(first), math.log(second), math.log(second)]
    assert scores.log_probs[0].tolist() == pytest.approx(wanted, abs=1e-6)
    entropy = -first * math.log(first) - second * math.log(second)
    assert scores.entropy[0].tolist() == pytest.approx([entropy] * 3, abs=1e-6)


# Padding and the stop token


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_pads_a_row_changes_no_value_and_no_gradient(kind):
    """Three more columns, and stop tokens behind every row instead of zeros."""
    batch = ragged_batch(torch.float64)
    fields = ("token_ids", "mask", "sampling_log_probs", "advantages", "weights")
    wide = {name: pad(getattr(batch, name), (0, 3)) for name in fields}
    wide["token_ids"] = wide["token_ids"].masked_fill(~wide["mask"], STOP)
    policy = exact_policy(kind)
    wanted = scored(policy, batch)
    found = scored(policy, replace(batch, **wide))
    assert found.log_probs.shape == (9, 10)
    assert largest(found.log_probs - pad(wanted.log_probs, (0, 3))) < 1e-12
    assert relative_difference(found.gradients, wanted.gradients) < 1e-12


def swapped(ids: Tensor, one: int, other: int) -> Tensor:
    """The ids with two of them exchanged."""
    return torch.where(ids == one, other, torch.where(ids == other, one, ids))


def test_a_stop_id_that_is_also_the_padding_id_changes_nothing():
    """The same model with two names exchanged: 9, and 0, which fills up rows and pads."""
    batch = ragged_batch(torch.float64)
    ids = batch.token_ids.clone()
    ids[torch.arange(len(ids)), batch.lengths - 1] = 9
    ends_with_nine = replace(batch, token_ids=ids)
    ends_with_zero = replace(
        batch,
        token_ids=swapped(ids, 0, 9).masked_fill(~batch.mask, 0),
        prompts=tuple(
            replace(p, token_ids=tuple(swapped(torch.tensor(p.token_ids), 0, 9).tolist()))
            for p in batch.prompts
        ),
    )
    policy = exact_policy("llama")
    wanted = scored(policy, ends_with_nine)
    with torch.no_grad():
        for table in (policy.module.model.embed_tokens.weight, policy.module.lm_head.weight):
            table[[0, 9]] = table[[9, 0]]
    found = scored(policy, ends_with_zero)
    assert largest(found.log_probs - wanted.log_probs) < 1e-12
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        found.gradients[name][[0, 9]] = found.gradients[name][[9, 0]]
    assert relative_difference(found.gradients, wanted.gradients) < 1e-12


def test_a_padding_id_trains_in_every_table_of_a_model_that_has_several():
    """Gemma 3n looks every token up once more for its layers."""
    config = Gemma3nTextConfig(
        vocab_size=64, vocab_size_per_layer_input=64, hidden_size=32, intermediate_size=[48] * 2,
        hidden_size_per_layer_input=8, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, laurel_rank=4, num_kv_shared_layers=0, pad_token_id=0,
        layer_types=["full_attention"] * 2, activation_sparsity_pattern=[0.0] * 2,
    )  # fmt: skip
    policy = CausalLM(randomised(Gemma3nForCausalLM(config)), tiny_tokenizer())
    batch = ragged_batch()
    found = scored(policy, replace(batch, token_ids=batch.token_ids.clamp(max=1))).gradients
    for table in ("model.embed_tokens.weight", "model.embed_tokens_per_layer.weight"):
        assert largest(found[table][0]) > 0


# Evaluation mode


def test_the_policy_has_no_dropout_even_if_the_model_was_in_training_mode():
    model = tiny_model("gpt2", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    wanted = CausalLM(model, tiny_tokenizer()).score(ragged_batch(), 1.0).log_probs
    policy = CausalLM(model.train(), tiny_tokenizer())
    assert policy.shares_prompts
    for _ in range(2):
        assert torch.equal(policy.score(ragged_batch(), 1.0).log_probs, wanted)


# Prompts, text and limits


def test_a_prompt_is_the_rendered_template_with_the_assistants_turn_open():
    policy = tiny_policy()
    prompt = policy.encode(Problem(id="addition/1+12", prompt="1+12", reference=13))
    assert prompt.problem_id == "addition/1+12"
    text = policy.tokenizer.convert_ids_to_tokens(prompt.token_ids)
    assert text[:6] == ["<s>", "<turn>", "u", "s", "e", "r"]
    assert "".join(text) == "<s><turn>user\n1+12</s><turn>assistant\n"


def test_a_start_token_that_template_and_tokenizer_both_add_stands_there_once():
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", START)]
    )
    policy = CausalLM(tiny_model(), tokenizer, shares_prompts=True)
    chat: tuple[Message, ...] = ({"role": "user", "content": "7"},)
    for prompt in ("7", chat):
        ids = policy.encode(Problem(id="p", prompt=prompt, reference=None)).token_ids
        assert ids[:2] == (START, TURN)
        assert ids.count(START) == 1
    tokenizer.chat_template = None
    ids = policy.encode(Problem(id="p", prompt="7", reference=None)).token_ids
    assert ids == (START, *tokenizer.convert_tokens_to_ids(["7"]))


def test_the_text_of_a_completion_has_no_special_tokens():
    policy = tiny_policy()
    ids = policy.tokenizer.convert_tokens_to_ids(["1", "2", "<turn>", "+", "12", "</s>"])
    assert policy.decode(ids) == "12+12"


def test_every_token_that_ends_a_completion_is_known():
    model = tiny_model(eos_token_id=[9, STOP])
    assert CausalLM(model, tiny_tokenizer(), shares_prompts=True).stop_token_ids == (STOP, 9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_most_positions_are_those_of_the_configuration(kind):
    assert tiny_policy(kind).max_positions == 512


# Saving


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_policy_is_a_folder_that_the_model_library_loads(kind, tied, tmp_path):
    policy = tiny_policy(kind, tie_word_embeddings=tied)
    assert (policy.module.lm_head.weight is policy.module.get_input_embeddings().weight) is tied
    policy.save(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    saved = policy.module.state_dict()
    loaded = model.state_dict()
    assert loaded.keys() == saved.keys()
    for name, values in saved.items():
        assert torch.equal(loaded[name], values), name
    assert (model.lm_head.weight is model.get_input_embeddings().weight) is tied
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    problem = Problem(id="p", prompt="what is 12 + 7?", reference=19)
    loaded_policy = CausalLM(model, tokenizer)
    assert loaded_policy.encode(problem) == policy.encode(problem)
    assert loaded_policy.stop_token_ids == policy.stop_token_ids
