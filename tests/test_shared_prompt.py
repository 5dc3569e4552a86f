"""A group that does not fit into one pass: its prompt is run once, forwards and backwards."""

import weakref

import pytest
import torch
from ragged import (
    counted_positions,
    gradients,
    largest,
    preset,
    ragged_batch,
    ragged_groups,
    relative_difference,
)
from test_families import small
from tiny import KINDS, exact_policy, keep_dtype_in_norms, tiny_model, tiny_tokenizer

from verigrad.batch import make_batch
from verigrad.policies.causal_lm import CausalLM
from verigrad.policies.recompute import recompute_layers
from verigrad.policies.shared_prompt import SharedPrompt
from verigrad.training.memory import MemoryWatch, PassCost, TokenBudget
from verigrad.training.step import Accumulated, accumulate, measure

LONG = ((40, (9, 6, 1, 7, 3, 6)), (12, (5, 1, 4)), (5, (2, 2)))
"""No completion of the first two groups fits into 30 tokens beside another; the third is whole."""


def trained(policy: CausalLM, budget: int | TokenBudget) -> Accumulated:
    policy.module.zero_grad()
    dtype = policy.module.dtype
    batch = make_batch(ragged_groups(LONG), preset("grpo"), dtype=dtype)
    done = accumulate(policy, batch, preset("grpo"), temperature=0.9, token_budget=budget)
    assert done is not None
    return done


@pytest.mark.parametrize("budget", [1, 50, 60])
@pytest.mark.parametrize("kind", [*KINDS, "mistral"])
def test_the_gradient_is_that_of_a_single_pass(kind, budget):
    policy = exact_policy(kind)
    whole = trained(policy, 1000)
    wanted = gradients(policy)
    assert whole.passes == 1
    cut = trained(policy, budget)
    assert cut.passes > 2
    assert float(cut.output.loss) == pytest.approx(float(whole.output.loss), rel=1e-12)
    assert relative_difference(gradients(policy), wanted) < 1e-12


def test_the_prompt_is_run_once_however_many_passes_continue_it():
    policy = exact_policy("llama")
    with counted_positions(policy) as positions:
        done = trained(policy, 1)
    assert done.passes == 6 + 3 + 2
    assert done.prompt_tokens == 40 + 12 + 5
    inside = sum(length - 1 for _, lengths in LONG for length in lengths)
    assert positions.entered == 40 + 12 + 5 + inside
    assert positions.through_head == sum(length for _, lengths in LONG for length in lengths)


def test_a_policy_whose_sequences_run_alone_shares_nothing_and_has_the_same_gradient():
    policy, alone = exact_policy("llama"), exact_policy("llama", shares_prompts=False)
    assert alone.share(ragged_batch().prompts[0]) is None
    trained(policy, 1)
    trained(alone, 1)
    assert relative_difference(gradients(policy), gradients(alone)) < 1e-12


@pytest.mark.parametrize("name", ["Cohere", "Gemma2", "GptOss"])
def test_a_head_that_does_more_and_attention_with_bounds_or_sinks_are_cut_alike(name):
    """Cohere scales its logits, Gemma 2 bounds logits and scores, GPT-OSS has sinks."""
    policy = small(name)
    assert policy.shares_prompts
    trained(policy, 1000)
    wanted = gradients(policy)
    assert trained(policy, 50).passes > 4
    assert relative_difference(gradients(policy), wanted) < 1e-5


def test_layers_that_run_again_in_the_backward_pass_have_the_same_bits():
    plain = exact_policy("llama")
    trained(plain, 50)
    model = keep_dtype_in_norms(tiny_model("llama", dtype=torch.float64))
    recompute_layers(model)
    again = CausalLM(model, tiny_tokenizer(), shares_prompts=True)
    trained(again, 50)
    for name, wanted in gradients(plain).items():
        assert torch.equal(gradients(again)[name], wanted), name


def test_what_is_measured_before_the_first_update_is_that_of_a_single_pass():
    policy, reference = exact_policy("qwen3"), exact_policy("gpt2")
    batch = make_batch(ragged_groups(LONG), preset("grpo"), dtype=torch.float64)
    whole, cut = (
        measure(policy, reference, batch, temperature=0.7, token_budget=budget)
        for budget in (1000, 50)
    )
    for field in ("old_log_probs", "entropy", "reference_log_probs"):
        assert largest(getattr(whole, field) - getattr(cut, field)) < 1e-12


class Shrinking(MemoryWatch):
    """Finds the second pass too large, also when it looks again, and every other small enough."""

    looks = 0

    def fits(self, tokens: int) -> bool:
        type(self).looks += 1
        return type(self).looks not in (2, 3)

    def words(self, tokens: int) -> str:
        return "memory is short"


def test_passes_that_get_smaller_within_a_group_change_no_gradient():
    policy = exact_policy("llama")
    trained(policy, 1000)
    wanted = gradients(policy)
    cost = PassCost(fixed=0.0, per_token=0.0, per_pair=0.0)
    watch = Shrinking(limit=0, device="cpu", cost=cost, module=policy.module)
    Shrinking.looks = 0
    budget = TokenBudget(60, watch)
    done = trained(policy, budget)
    assert budget.tokens < 60
    assert done.passes > 4
    assert relative_difference(gradients(policy), wanted) < 1e-12


class Memory(MemoryWatch):
    """Memory in which a token takes a byte; what lives is told by the test."""

    lives = 0

    def used(self) -> int:
        return type(self).lives

    def needed(self, tokens: int) -> int:
        return tokens

    def words(self, tokens: int) -> str:
        return f"{self.used()} are in use and {tokens} more are needed"


def test_a_prompt_that_is_in_memory_is_not_counted_again():
    """A prompt of 40 lives through its passes; each has 9 tokens or fewer on top of it."""
    policy = exact_policy("llama")
    batch = make_batch(ragged_groups(LONG[:1]), preset("grpo"), dtype=torch.float64)
    cost = PassCost(fixed=0.0, per_token=1.0, per_pair=0.0)
    Memory.lives = 0
    watch = Memory(limit=50, device="cpu", cost=cost, module=policy.module)
    budget = TokenBudget(50, watch)
    for some in budget.passes(batch, range(6)):
        assert (some.group, some.prompt) == (0, 40)
        Memory.lives = 40
    assert some.last
    assert budget.tokens == 50


def test_the_prompt_of_a_group_is_over_before_the_next_pass_is_looked_at(monkeypatch):
    events = []
    backward = SharedPrompt.backward
    monkeypatch.setattr(
        SharedPrompt, "backward", lambda self: (events.append("prompt"), backward(self))
    )
    passes = TokenBudget.passes

    def watched(self, tokens, rows):
        for some in passes(self, tokens, rows):
            events.append("pass")
            yield some

    monkeypatch.setattr(TokenBudget, "passes", watched)
    trained(exact_policy("llama"), 50)
    first = events.index("prompt")
    assert events[:first] == ["pass"] * 4
    assert events.count("prompt") == 1
    assert len(events) > first + 1


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_prompt_that_is_not_used_is_not_kept(recomputed):
    model = tiny_model("llama")
    if recomputed:
        recompute_layers(model)
    policy = CausalLM(model, tiny_tokenizer(), shares_prompts=True)
    keys = weakref.ref(policy.share(ragged_batch().prompts[1]).sources[1])
    assert keys() is None
