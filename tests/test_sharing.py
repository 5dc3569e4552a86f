"""A prompt shared by its completions: exact where it is done, not done where it is not exact."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ragged import largest, prompts_of, ragged_batch, relative_difference, scored
from tiny import (
    KINDS,
    START,
    STOP,
    WINDOW,
    exact_policy,
    keep_dtype_in_norms,
    randomised,
    tiny_config,
    tiny_model,
    tiny_policy,
    tiny_tokenizer,
)
from torch import Tensor
from transformers import (
    BertConfig,
    BertLMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    PreTrainedModel,
    RwkvConfig,
    RwkvForCausalLM,
)

from verigrad.batch import Batch
from verigrad.engines import Draws, LocalEngine
from verigrad.errors import ModelError
from verigrad.hashing import Purpose
from verigrad.policies.causal_lm import CausalLM
from verigrad.policies.windows import windows_of
from verigrad.types import Sampling

ALL_KINDS = (*KINDS, "mistral")


def policies(model: PreTrainedModel) -> tuple[CausalLM, CausalLM]:
    """The same model with each prompt shared, and with every sequence alone."""
    tokenizer = tiny_tokenizer()
    return (
        CausalLM(model, tokenizer, shares_prompts=True),
        CausalLM(model, tokenizer, shares_prompts=False),
    )


# A shared prompt is the same as separate sequences


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_shared_prompt_gives_values_and_gradients_of_separate_sequences(kind):
    model = keep_dtype_in_norms(tiny_model(kind, dtype=torch.float64))
    shared, separate = (scored(p, ragged_batch(torch.float64)) for p in policies(model))
    assert largest(shared.log_probs - separate.log_probs) < 1e-12
    assert largest(shared.entropy - separate.entropy) < 1e-12
    assert relative_difference(shared.gradients, separate.gradients) < 1e-12


LENGTH = st.integers(1, 2 * WINDOW + 1)
GROUP = st.tuples(LENGTH, st.lists(LENGTH, min_size=1, max_size=4).map(tuple))


@settings(max_examples=40)
@given(kind=st.sampled_from(ALL_KINDS), shape=st.lists(GROUP, min_size=1, max_size=4).map(tuple))
def test_a_shared_prompt_is_exact_for_prompts_and_completions_of_any_lengths(kind, shape):
    batch = ragged_batch(torch.float64, shape=shape)
    model = keep_dtype_in_norms(tiny_model(kind, dtype=torch.float64))
    shared, separate = (scored(policy, batch) for policy in policies(model))
    assert largest(shared.log_probs - separate.log_probs) < 1e-12
    assert relative_difference(shared.gradients, separate.gradients) < 1e-12


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_shared_prompt_is_exact_for_the_model_as_it_is(kind):
    """Its norms compute in float32, whatever the dtype of the rest."""
    model = tiny_model(kind, dtype=torch.float64)
    shared, separate = (scored(p, ragged_batch(torch.float64)) for p in policies(model))
    assert largest(shared.log_probs - separate.log_probs) < 1e-6 * largest(separate.log_probs)
    assert relative_difference(shared.gradients, separate.gradients) < 1e-6


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_in_float32_a_shared_prompt_rounds_no_worse_than_separate_sequences(kind):
    model = tiny_model(kind, dtype=torch.float32)
    shared, separate = (scored(p, ragged_batch(torch.float32)) for p in policies(model))
    exact = scored(policies(model.double())[1], ragged_batch(torch.float64))
    found, allowed = (
        relative_difference(some.gradients, exact.gradients) for some in (shared, separate)
    )
    assert found < 2 * allowed
    assert allowed < 1e-5


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_shared_prompt_is_exact_with_eager_attention_too(kind):
    """Its softmax computes in float32, except for GPT-2."""
    model = tiny_model(kind, dtype=torch.float64, attention="eager")
    shared, separate = (scored(p, ragged_batch(torch.float64)) for p in policies(model))
    within = 1e-12 if kind == "gpt2" else 1e-6
    assert largest(shared.log_probs - separate.log_probs) < within * largest(separate.log_probs)
    assert relative_difference(shared.gradients, separate.gradients) < within


@pytest.mark.parametrize("shares_prompts", [True, False])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_log_probs_and_entropy_are_those_of_the_plain_models_whole_table(kind, shares_prompts):
    batch = ragged_batch(torch.float64)
    policy = exact_policy(kind, shares_prompts=shares_prompts)
    scores = policy.score(batch, 0.7)
    wanted = [torch.zeros_like(scores.log_probs) for _ in range(2)]
    for row, length in enumerate(batch.lengths.tolist()):
        table = log_softmax_table(policy.module, batch, row, temperature=0.7)
        ids = batch.token_ids[row, :length].unsqueeze(1)
        wanted[0][row, :length] = table.gather(1, ids).squeeze(1)
        wanted[1][row, :length] = -(table.exp() * table).sum(dim=1)
    assert largest(scores.log_probs - wanted[0]) < 1e-12
    assert largest(scores.entropy - wanted[1]) < 1e-12


@torch.no_grad()
def log_softmax_table(
    model: PreTrainedModel, batch: Batch, row: int, temperature: float = 1.0
) -> Tensor:
    """Log-probs of all tokens at each place of one completion: the plain model on the sequence."""
    prompt = list(batch.prompts[int(batch.group_index[row])].token_ids)
    completion = batch.token_ids[row, : int(batch.lengths[row])].tolist()
    ids = torch.tensor([prompt + completion])
    logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(dim=-1)


def test_a_token_that_does_not_train_has_no_log_prob_and_leaves_the_others_as_they_are():
    batch = ragged_batch(torch.float64)
    keep = torch.rand(batch.mask.shape, generator=torch.Generator().manual_seed(2)) < 0.6
    some = replace(batch, mask=batch.mask & keep)
    assert not some.mask[:, 0].all()
    assert some.mask[:, 0].any()
    for policy in policies(tiny_model("llama", dtype=torch.float64)):
        whole = policy.score(batch, 1.0).log_probs
        part = policy.score(some, 1.0).log_probs
        assert largest(part - torch.where(some.mask, whole, 0.0)) < 1e-6


@pytest.mark.parametrize(("kind", "minds"), [("llama", False), ("mistral", True)])
def test_a_window_in_the_configuration_counts_where_the_model_minds_it(kind, minds):
    """Any key may stand in a configuration; a few tokens do not reach beyond a window of 16."""
    model = tiny_model(kind, dtype=torch.float64, sliding_window=16)
    policy = CausalLM(model, tiny_tokenizer())
    assert policy.shares_prompts
    assert model.config.sliding_window == 16
    batch = ragged_batch(torch.float64, shape=((40, (9, 3)),))
    alone = CausalLM(model, tiny_tokenizer(), shares_prompts=False)
    found, wanted = scored(policy, batch), scored(alone, batch)
    assert largest(found.log_probs - wanted.log_probs) < 1e-6
    without = tiny_model(kind, dtype=torch.float64, sliding_window=64)
    far = scored(CausalLM(without, tiny_tokenizer(), shares_prompts=False), batch)
    assert (largest(far.log_probs - wanted.log_probs) > 0.1) is minds


@pytest.mark.parametrize(("kind", "window"), [("llama", None), ("mistral", WINDOW)])
def test_a_window_counts_too_while_what_attention_gives_is_multiplied_by_zeros(kind, window):
    """As in a model that begins as if it had no layers."""
    model = tiny_model(kind, sliding_window=WINDOW)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()
    assert windows_of(model) == window


def test_a_model_without_gains_and_biases_shares_too():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
    config = OlmoConfig(**sizes, num_attention_heads=4, pad_token_id=0, eos_token_id=2)
    policy = CausalLM(OlmoForCausalLM(config), tiny_tokenizer())
    assert all(value.dim() > 1 for value in policy.module.parameters())
    assert policy.shares_prompts
    policy.module.requires_grad_(False)
    assert CausalLM(policy.module, tiny_tokenizer()).shares_prompts


@pytest.mark.parametrize(
    ("rope", "limit"),
    [
        ({"rope_type": "default"}, 512),
        ({"rope_type": "dynamic", "factor": 2.0}, 512),
        (
            {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
             "original_max_position_embeddings": 64},
            64,
        ),
    ],
)  # fmt: skip
def test_a_model_ends_where_its_positions_would_change_those_before(rope, limit):
    model = tiny_model("llama", rope_parameters={"rope_theta": 10_000.0} | rope)
    assert CausalLM(model, tiny_tokenizer()).max_positions == limit


# Models whose prompt cannot be shared


class DoublesGradients(LlamaForCausalLM):
    """Has a gradient of its own where masks come from outside."""

    def __init__(self, config):
        super().__init__(config)
        forward = self.model.forward

        def doubled(*args, **kwargs):
            output = forward(*args, **kwargs)
            if kwargs.get("attention_mask") is not None:
                hidden = output.last_hidden_state
                output.last_hidden_state = 2 * hidden - hidden.detach()
            return output

        self.model.forward = doubled


def test_a_model_whose_gradient_is_another_one_runs_its_sequences_alone(caplog):
    model = randomised(DoublesGradients(tiny_config("llama")))
    assert not CausalLM(model, tiny_tokenizer()).shares_prompts
    assert "has gradients that a prompt shared by its completions changes by" in caplog.text


class DeafToPositions(LlamaForCausalLM):
    """Counts positions by the place in the row, whatever it is told."""

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs | {"position_ids": None})


class DeafToMasks(LlamaForCausalLM):
    """Attends to everything before, whatever it is told."""

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs | {"attention_mask": None})


class WithoutPositions(LlamaForCausalLM):
    """Takes no positions at all."""

    def forward(self, *args, **kwargs):
        if "position_ids" in kwargs:
            raise TypeError("forward() got an unexpected keyword argument 'position_ids'")
        return super().forward(*args, **kwargs)


def tiny_mamba() -> PreTrainedModel:
    config = MambaConfig(
        vocab_size=64, hidden_size=32, state_size=4, num_hidden_layers=2, eos_token_id=STOP
    )
    torch.manual_seed(0)
    return MambaForCausalLM(config).eval()


def tiny_gpt_neo() -> PreTrainedModel:
    """A window of its own, counted by places in the row and longer than a few tokens."""
    config = GPTNeoConfig(
        vocab_size=64,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=12,
        bos_token_id=START,
        eos_token_id=STOP,
    )
    return randomised(GPTNeoForCausalLM(config))


def llama_like(kind: type[LlamaForCausalLM]) -> PreTrainedModel:
    model = kind(tiny_config("llama")).eval()
    model.load_state_dict(tiny_model("llama").state_dict())
    return model


UNSHARED = {
    "mamba": tiny_mamba,
    "gpt-neo": tiny_gpt_neo,
    "deaf to positions": lambda: llama_like(DeafToPositions),
    "deaf to masks": lambda: llama_like(DeafToMasks),
    "without positions": lambda: llama_like(WithoutPositions),
}


@pytest.mark.parametrize("name", UNSHARED)
def test_a_model_that_cannot_share_a_prompt_runs_every_sequence_alone_and_says_so_once(
    name, caplog
):
    policy = CausalLM(UNSHARED[name](), tiny_tokenizer())
    batch = ragged_batch()
    log_probs = policy.score(batch, 1.0).log_probs
    for row, length in enumerate(batch.lengths.tolist()):
        table = log_softmax_table(policy.module, batch, row)
        wanted = table.gather(1, batch.token_ids[row, :length].unsqueeze(1)).squeeze(1)
        assert largest(log_probs[row, :length] - wanted) < 1e-5
    (record,) = [record for record in caplog.records if record.name == "verigrad"]
    assert record.levelname == "WARNING"
    assert "every sequence runs alone, which is exact and slower" in record.getMessage()
    assert record.getMessage().startswith(type(policy.module).__name__)


@pytest.mark.parametrize("name", UNSHARED)
def test_a_model_that_cannot_share_a_prompt_samples_from_its_own_distribution(name):
    policy = CausalLM(UNSHARED[name](), tiny_tokenizer())
    sampling = Sampling(max_new_tokens=6, stop_token_ids=())
    draws = Draws(seed=0, purpose=Purpose.TRAIN, step=0)
    (prompt,) = prompts_of(5)
    ((completion,),) = LocalEngine(policy).generate([prompt], 1, sampling, draws)
    ids = torch.tensor([[*prompt.token_ids, *completion.token_ids]])
    with torch.no_grad():
        table = policy.module(input_ids=ids, use_cache=False).logits[0, 4:-1].log_softmax(-1)
    wanted = table.gather(1, torch.tensor(completion.token_ids).unsqueeze(1)).squeeze(1)
    assert completion.log_probs == pytest.approx(wanted.tolist(), abs=1e-5)


def tiny_rwkv() -> PreTrainedModel:
    """Keeps a state between tokens, and not what the library calls a cache."""
    torch.manual_seed(0)
    return RwkvForCausalLM(
        RwkvConfig(vocab_size=64, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2)
    )


def tiny_gpt() -> PreTrainedModel:
    """Keeps nothing between tokens."""
    return randomised(
        OpenAIGPTLMHeadModel(OpenAIGPTConfig(vocab_size=64, n_embd=32, n_layer=2, n_head=4))
    )


class DeafToItsCache(LlamaForCausalLM):
    """Begins anew with every call, whatever came before."""

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs | {"cache": None})


@pytest.mark.parametrize("make", [tiny_rwkv, tiny_gpt, lambda: llama_like(DeafToItsCache)])
@pytest.mark.parametrize("shares_prompts", [None, False])
def test_a_model_without_a_cache_samples_from_its_own_distribution(make, shares_prompts):
    policy = CausalLM(make(), tiny_tokenizer(), shares_prompts=shares_prompts)
    prompts = prompts_of(5, 1)
    sampling = Sampling(max_new_tokens=6, stop_token_ids=())
    draws = Draws(seed=0, purpose=Purpose.TRAIN, step=0)
    groups = LocalEngine(policy, rows_at_once=3).generate(prompts, 2, sampling, draws)
    for prompt, group in zip(prompts, groups, strict=True):
        for completion in group:
            ids = torch.tensor([[*prompt.token_ids, *completion.token_ids]])
            with torch.no_grad():
                table = policy.module(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
            place = torch.arange(len(prompt.token_ids) - 1, ids.shape[1] - 1)
            wanted = table[place, torch.tensor(completion.token_ids)]
            assert completion.log_probs == pytest.approx(wanted.tolist(), abs=1e-5)


class GivesAllLogits(LlamaForCausalLM):
    """Gives the logits of every token, whatever is asked for."""

    def forward(self, *args, logits_to_keep=0, **kwargs):
        return super().forward(*args, **kwargs)


def test_a_model_that_always_gives_all_logits_scores_those_of_the_completion():
    policy = CausalLM(llama_like(GivesAllLogits), tiny_tokenizer(), shares_prompts=False)
    wanted = CausalLM(tiny_model("llama"), tiny_tokenizer(), shares_prompts=False)
    batch = ragged_batch()
    found = policy.score(batch, 1.0).log_probs
    assert largest(found - wanted.score(batch, 1.0).log_probs) < 1e-5


def test_a_model_whose_base_gives_no_hidden_states_runs_its_sequences_alone():
    """Llama 4's base model, asked for through the language model alone, is that model itself."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "intermediate_size_mlp": 48}
    config = Llama4TextConfig(
        **sizes, vocab_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, num_local_experts=2, attention_chunk_size=16, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    assert not CausalLM(Llama4ForCausalLM(config), tiny_tokenizer()).shares_prompts


@pytest.mark.parametrize("shares_prompts", [None, True, False])
def test_a_model_that_fills_gaps_is_refused(shares_prompts):
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = BertConfig(**sizes, num_attention_heads=4)
    torch.manual_seed(0)
    with pytest.raises(ModelError, match=r"BertLMHeadModel predicts a token from those after it"):
        CausalLM(BertLMHeadModel(config), tiny_tokenizer(), shares_prompts=shares_prompts)


def test_a_model_whose_parts_do_not_fit_is_refused_in_one_line():
    model = tiny_model("llama")
    model.model.layers[1].mlp.down_proj = torch.nn.Linear(7, 32)
    with pytest.raises(ModelError, match=r"^LlamaForCausalLM cannot be run on three tokens") as got:
        CausalLM(model, tiny_tokenizer())
    assert "\n" not in str(got.value)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_model_that_can_share_a_prompt_is_found_to_and_nothing_is_said(kind, caplog):
    assert tiny_policy(kind, shares_prompts=None).shares_prompts
    assert [record for record in caplog.records if record.name == "verigrad"] == []
