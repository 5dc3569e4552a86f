"""Layers that compute their activations again: the same bits, in less memory."""

import copy

import pytest
import torch
from ragged import ragged_batch, scored, update_once
from tiny import KINDS, exact_policy, tiny_policy

from verigrad.config import load_config
from verigrad.engines import Draws, LocalEngine
from verigrad.errors import ConfigError, ModelError
from verigrad.hashing import Purpose
from verigrad.policies.causal_lm import CausalLM
from verigrad.policies.recompute import recompute_layers
from verigrad.types import Sampling


def recomputing(kind: str) -> CausalLM:
    policy = exact_policy(kind)
    recompute_layers(policy.module)
    return policy


@pytest.mark.parametrize("kind", [*KINDS, "mistral"])
def test_log_probs_and_gradients_are_the_same_bits(kind):
    batch = ragged_batch(torch.float64)
    plain, again = scored(exact_policy(kind), batch), scored(recomputing(kind), batch)
    assert torch.equal(plain.log_probs, again.log_probs)
    assert plain.gradients.keys() == again.gradients.keys()
    for name, values in plain.gradients.items():
        assert torch.equal(values, again.gradients[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_keeps_less_than_half_as_much(kind):
    def kept(policy: CausalLM) -> int:
        sizes = []
        batch = ragged_batch(torch.float64, shape=((20, (30, 30, 30, 30)),))

        def keep(values: torch.Tensor) -> torch.Tensor:
            sizes.append(values.numel() if not isinstance(values, torch.nn.Parameter) else 0)
            return values

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda values: values):
            policy.score(batch, 1.0)
        return sum(sizes)

    assert kept(recomputing(kind)) < kept(exact_policy(kind)) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_generated_is_the_same(kind):
    prompts = ragged_batch().prompts
    sampling = Sampling(max_new_tokens=6, stop_token_ids=())
    draws = Draws(seed=0, purpose=Purpose.TRAIN, step=0)
    plain, again = (
        LocalEngine(policy).generate(prompts, 3, sampling, draws)
        for policy in (exact_policy(kind), recomputing(kind))
    )
    assert plain == again


def test_a_copy_runs_its_own_layers():
    policy = tiny_policy()
    recompute_layers(policy.module)
    batch = ragged_batch()
    frozen = copy.deepcopy(policy)
    before = policy.score(batch, 1.0).log_probs.detach()
    update_once(policy, batch, learning_rate=0.1)
    assert torch.equal(frozen.score(batch, 1.0).log_probs, before)
    assert not torch.equal(policy.score(batch, 1.0).log_probs, before)


def test_a_model_without_such_layers_is_refused():
    with pytest.raises(ModelError, match="Linear has no layers that can be run again"):
        recompute_layers(torch.nn.Linear(2, 2))


def test_a_table_is_refused(tmp_path):
    file = tmp_path / "toy.toml"
    file.write_text('task = "toy"\n[model]\nname = "tabular"\nactivation_checkpointing = true\n')
    with pytest.raises(ConfigError, match=r"remove model\.activation_checkpointing"):
        load_config(file)
