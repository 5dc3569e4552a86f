"""The vocabulary head in chunks: the same values and gradients as the whole table of logits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny_model, tiny_policy
from torch import Tensor

from verigrad.core import head
from verigrad.core.head import head_scores
from verigrad.core.logprobs import entropy, token_log_probs
from verigrad.policies.forward import plain_head

V, H = 23, 5


def plain(hidden: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, temperature: float):
    logits = hidden @ weight.T if bias is None else hidden @ weight.T + bias
    return token_log_probs(logits, ids, temperature), entropy(logits, temperature)


def gradients(
    scores: tuple[Tensor, Tensor], upstream: Tensor, leaves: list[Tensor]
) -> list[Tensor]:
    total = (scores[0] * upstream[0]).sum() + (scores[1] * upstream[1]).sum()
    return list(torch.autograd.grad(total, leaves))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 12),
    at_once=st.integers(1, 300),
    temperature=st.sampled_from([0.0, 0.5, 1.0, 1.7]),
    with_bias=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_chunks_of_any_size_give_the_values_and_gradients_of_the_whole_table(
    rows, at_once, temperature, with_bias, seed
):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    hidden, weight = normal(rows, H), normal(V, H)
    bias = normal(V) if with_bias else None
    ids = torch.randint(V, (rows,), generator=generator)
    upstream = normal(2, rows).detach()
    leaves = [hidden, weight] if bias is None else [hidden, weight, bias]
    wanted = plain(hidden, weight, bias, ids, temperature)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "LOGITS_AT_ONCE", at_once)
        found = head_scores(hidden, weight, bias, ids, temperature, entropy_gradient=True)
        found_gradients = gradients(found, upstream, leaves)
    for one, other in zip(found, wanted, strict=True):
        assert float((one - other).detach().abs().max()) < 1e-12
    for one, other in zip(found_gradients, gradients(wanted, upstream, leaves), strict=True):
        assert float((one - other).abs().max()) < 1e-12


def test_the_entropy_has_a_gradient_only_where_it_is_asked_for():
    hidden, weight = torch.randn(3, H, requires_grad=True), torch.randn(V, H)
    ids = torch.tensor([1, 2, 3])
    assert not head_scores(hidden, weight, None, ids, 1.0)[1].requires_grad
    assert head_scores(hidden, weight, None, ids, 1.0, entropy_gradient=True)[1].requires_grad


def test_a_head_that_is_frozen_still_passes_the_gradient_on():
    hidden, weight = torch.randn(3, H, requires_grad=True), torch.randn(V, H)
    log_probs, _ = head_scores(hidden, weight, None, torch.tensor([1, 2, 3]), 1.0)
    (found,) = torch.autograd.grad(log_probs.sum(), hidden)
    wanted, _ = plain(hidden, weight, None, torch.tensor([1, 2, 3]), 1.0)
    assert torch.allclose(found, torch.autograd.grad(wanted.sum(), hidden)[0], atol=1e-6)


def test_no_table_of_all_logits_is_ever_made(monkeypatch):
    made: list[int] = []

    def watched(*arguments):
        logits = original(*arguments)
        made.append(logits.numel())
        return logits

    original = head._logits
    monkeypatch.setattr(head, "_logits", watched)
    monkeypatch.setattr(head, "LOGITS_AT_ONCE", 4 * V)
    hidden, weight = torch.randn(10, H, requires_grad=True), torch.randn(V, H)
    head_scores(hidden, weight, None, torch.zeros(10, dtype=torch.int64), 1.0)[0].sum().backward()
    assert made == [4 * V, 4 * V, 2 * V] * 2


@pytest.mark.parametrize("at_once", [4 * V, 100 * V])
def test_going_backwards_twice_gives_the_same_gradient_twice(monkeypatch, at_once):
    """Logits that stay for the backward pass are still there after it."""
    monkeypatch.setattr(head, "LOGITS_AT_ONCE", at_once)
    hidden, weight = torch.randn(10, H, requires_grad=True), torch.randn(V, H, requires_grad=True)
    ids = torch.arange(10)
    scores = head_scores(hidden, weight, None, ids, 0.7, entropy_gradient=True)
    other = head_scores(2 * hidden, weight, None, ids, 0.7)
    upstream = torch.randn(2, 10)
    first, second = (
        torch.autograd.grad(
            (scores[0] * upstream[0] + scores[1] * upstream[1]).sum() + other[0].sum(),
            [hidden, weight],
            retain_graph=True,
        )
        for _ in range(2)
    )
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_a_token_that_cannot_be_has_no_gradient_and_takes_none_of_the_others_away():
    bias = torch.zeros(V)
    bias[3] = -torch.inf
    hidden, weight = torch.randn(4, H, requires_grad=True), torch.randn(V, H)
    scores = head_scores(
        hidden, weight, bias, torch.tensor([0, 1, 2, 4]), 1.0, entropy_gradient=True
    )
    (found,) = torch.autograd.grad((scores[0] - 5 * scores[1]).sum(), hidden)
    possible = torch.arange(V) != 3
    logits = (hidden @ weight.T)[:, possible]
    wanted = token_log_probs(logits, torch.tensor([0, 1, 2, 3]), 1.0) - 5 * entropy(logits, 1.0)
    assert torch.allclose(found, torch.autograd.grad(wanted.sum(), hidden)[0], atol=1e-5)


def test_a_model_that_caps_its_logits_has_no_plain_head():
    """Gemma 2 squashes its logits, which the product with the head's weights leaves out."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, final_logit_softcapping=2.0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(config).eval()
    model.lm_head.weight.data.normal_()
    assert plain_head(model) is None
    assert plain_head(tiny_model("llama")) is not None


def test_a_cap_is_seen_while_logits_are_still_too_small_for_it_to_matter():
    """The logits of a model that has not learnt yet are a tenth; the cap would begin at thirty."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, final_logit_softcapping=30.0,
        initializer_range=0.01,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Gemma2ForCausalLM(config).eval()
    assert plain_head(model) is None
    model.config.final_logit_softcapping = None
    assert plain_head(model) is model.lm_head


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_looking_at_a_head_leaves_the_model_as_it_was(kind):
    model = tiny_model(kind)
    tokens = torch.arange(5).unsqueeze(0)
    before = model(input_ids=tokens).logits
    assert plain_head(model) is not None
    assert torch.equal(model(input_ids=tokens).logits, before)


def test_the_policy_scores_the_same_with_and_without_the_fused_head():
    from ragged import largest, ragged_batch, relative_difference, scored

    policy = tiny_policy("llama")
    fused = scored(policy, ragged_batch(torch.float32))
    policy._head = None
    plainly = scored(policy, ragged_batch(torch.float32))
    assert largest(fused.log_probs - plainly.log_probs) < 1e-5
    assert relative_difference(fused.gradients, plainly.gradients) < 1e-5
