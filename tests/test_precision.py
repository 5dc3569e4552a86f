"""Layers in bfloat16: what stays float32, how near the numbers are to its own, and that it learns.

A bfloat16 number has 8 significant bits, so rounding changes it by up to a 256th of itself.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ragged import (
    completion_of,
    gradients,
    group_of,
    largest,
    preset,
    prompts_of,
    ragged_batch,
    scored,
    update_once,
)
from running import assert_same_run, read_jsonl, write_tiny_run
from tiny import KINDS, VOCABULARY, constant_policy, tiny_model, tiny_tokenizer
from torch import Tensor

from verigrad.batch import Batch, make_batch
from verigrad.cli import main
from verigrad.config import load_config
from verigrad.engines import Draws, LocalEngine
from verigrad.errors import ConfigError
from verigrad.hashing import Purpose
from verigrad.policies.causal_lm import CausalLM
from verigrad.policies.continuation import PlainContinuation, SharedContinuation
from verigrad.policies.precision import Precision
from verigrad.policies.recompute import recompute_layers
from verigrad.training.decisions import choose_precision
from verigrad.types import Prompt, Sampling

PATHS = [
    pytest.param(kind, {}, shares, id=f"{kind}-{'shared' if shares else 'alone'}")
    for kind in (*KINDS, "mistral")
    for shares in (True, False)
] + [
    # Its logits are more than the product of the last hidden states and the head.
    pytest.param("gemma3", {"final_logit_softcapping": 5.0}, True, id="gemma3-capped")
]
"""Every way through a model."""

SAMPLER_WITHIN = 0.03
"""Log-probs of sampler and trainer differ by less; the largest seen was 0.019."""

GRADIENT_WITHIN = 0.03
"""So is the difference to float32's gradient smaller than its norm; the largest seen was 0.020."""


def policy_in(
    precision: Precision, kind: str = "llama", shares: bool | None = True, **changes: Any
) -> CausalLM:
    return CausalLM(
        tiny_model(kind, **changes), tiny_tokenizer(), shares_prompts=shares, precision=precision
    )


def sampled(policy: CausalLM) -> Batch:
    """The policy's own completions, with the log-probs that they were sampled at."""
    prompts = prompts_of(1, 9, 3)
    sampling = Sampling(max_new_tokens=8, stop_token_ids=())
    draws = Draws(seed=0, purpose=Purpose.TRAIN, step=0)
    rows = LocalEngine(policy).generate(prompts, 3, sampling, draws)
    groups = [group_of(p, row, [0.0, 1.0, 0.5]) for p, row in zip(prompts, rows, strict=True)]
    return make_batch(groups, preset("grpo"))


def gap(policy: CausalLM, batch: Batch) -> Tensor:
    """How far the trainer's log-probs are from those that tokens were sampled at."""
    found = policy.score(batch, 1.0).log_probs.detach()
    return (found - batch.sampling_log_probs)[batch.mask].abs()


def flat(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.flatten() for value in values.values()])


# Layers in bfloat16


@pytest.mark.parametrize(("kind", "changes", "shares"), PATHS)
def test_sampler_and_trainer_agree_within_rounding(kind, changes, shares):
    policy = policy_in("bfloat16", kind, shares, **changes)
    batch = sampled(policy)
    found = gap(policy, batch)
    assert float(found.max()) < SAMPLER_WITHIN
    exact = gap(policy_in("float32", kind, shares, **changes), batch)
    assert found.mean() < exact.mean() / 2, "both work in bfloat16"


@pytest.mark.parametrize(("kind", "changes", "shares"), PATHS)
def test_the_gradient_is_near_that_of_float32(kind, changes, shares):
    batch = ragged_batch()
    found, wanted = (
        flat(scored(policy_in(precision, kind, shares, **changes), batch).gradients)
        for precision in ("bfloat16", "float32")
    )
    difference = float((found - wanted).norm() / wanted.norm())
    assert 1e-4 < difference < GRADIENT_WITHIN


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_cast_once_generate_the_same_bits_as_those_cast_for_every_token(kind, shares):
    policy = policy_in("bfloat16", kind, shares)
    prompts = prompts_of(2, 5)
    start = SharedContinuation if shares else PlainContinuation
    with torch.no_grad():
        once = policy.continuation(prompts, 2)
        often = start(policy.module, prompts, 2)
        for token in (7, 8, 9):
            assert torch.equal(once.logits()[0], often.logits()[0])
            for rows in (once, often):
                rows.advance(torch.arange(4), torch.tensor([token, 1, 2, token]))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_run_again_give_the_same_bits(kind):
    plain, again = policy_in("bfloat16", kind), tiny_model(kind)
    recompute_layers(again)
    again = CausalLM(again, tiny_tokenizer(), shares_prompts=True, precision="bfloat16")
    found, wanted = (scored(policy, ragged_batch()) for policy in (again, plain))
    assert torch.equal(found.log_probs, wanted.log_probs)
    assert torch.equal(flat(found.gradients), flat(wanted.gradients))


def test_a_copy_has_layers_in_bfloat16_of_its_own():
    policy, batch = policy_in("bfloat16"), ragged_batch()
    frozen = copy.deepcopy(policy)
    before = policy.score(batch, 1.0).log_probs.detach()
    update_once(policy, batch, learning_rate=0.1)
    assert torch.equal(frozen.score(batch, 1.0).log_probs, before)
    assert not torch.equal(policy.score(batch, 1.0).log_probs, before)


def test_the_layers_are_checked_in_float32_and_then_work_in_bfloat16():
    model, seen = tiny_model(), set()
    model.model.layers[1].mlp.up_proj.register_forward_hook(
        lambda layer, inputs, output: seen.add(output.dtype)
    )
    policy = CausalLM(model, tiny_tokenizer(), precision="bfloat16")
    assert seen == {torch.float32}
    seen.clear()
    policy.score(sampled(policy), 1.0)
    assert seen == {torch.bfloat16}


# What stays float32


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_gradients_are_float32(kind):
    policy = policy_in("bfloat16", kind)
    parameters = list(policy.module.parameters())
    batch = sampled(policy)
    assert update_once(policy, batch) is not None
    assert all(a is b for a, b in zip(policy.module.parameters(), parameters, strict=True))
    assert {value.dtype for value in parameters} == {torch.float32}
    assert {value.dtype for value in gradients(policy).values()} == {torch.float32}


def test_a_step_too_small_for_bfloat16_moves_the_weights():
    policy = policy_in("bfloat16")
    before = policy.module.model.layers[0].mlp.up_proj.weight.detach().clone()
    update_once(policy, ragged_batch(), learning_rate=1e-3)
    after = policy.module.model.layers[0].mlp.up_proj.weight.detach()
    assert float((after != before).float().mean()) > 0.95
    assert float((after.bfloat16() != before.bfloat16()).float().mean()) < 0.05


@pytest.mark.parametrize("shares", [True, False])
def test_the_head_is_float32_for_sampler_and_trainer(shares):
    # The layers of this model end in (1, 0, 0, ...), whatever they compute in.
    logits = [1.001, -0.3003, 2.0007, 0.1234567]
    model = constant_policy(logits).module
    policy = CausalLM(model, tiny_tokenizer(), shares_prompts=shares, precision="bfloat16")
    wanted = torch.tensor(logits).log_softmax(0)
    prompt = Prompt(problem_id="p", token_ids=(1,))
    with torch.no_grad():
        found = policy.continuation([prompt], 1).logits()[0][0].log_softmax(0)
    assert largest(found - wanted) < 1e-6
    every = [completion_of([token]) for token in range(4)]
    batch = make_batch([group_of(prompt, every, [1.0, 0.0, 0.0, 0.0])], preset("grpo"))
    log_probs = policy.score(batch, 1.0).log_probs.detach().flatten()
    assert largest(log_probs - wanted) < 1e-6
    assert float(log_probs.double().exp().sum()) == pytest.approx(1.0, abs=1e-6)


def test_what_a_model_does_to_its_logits_is_done_in_float32():
    model = policy_in("bfloat16", "gemma3", final_logit_softcapping=5.0).module
    tokens = torch.arange(9).unsqueeze(0)
    with torch.no_grad():
        hidden = model.base_model(input_ids=tokens).last_hidden_state
        assert hidden.dtype == torch.float32
        wanted = torch.tanh(model.lm_head(hidden) / 5.0) * 5.0
        assert torch.equal(model(input_ids=tokens).logits, wanted)


def test_weights_are_float32_again_after_a_token_that_cannot_be_run():
    policy = policy_in("bfloat16")
    with torch.no_grad():
        rows = policy.continuation(prompts_of(2), 1)
        with pytest.raises(IndexError):
            rows.advance(torch.tensor([0]), torch.tensor([VOCABULARY + 9]))
    assert {value.dtype for value in policy.module.parameters()} == {torch.float32}


def test_a_model_without_a_head_of_its_own_says_so_and_is_float32(caplog):
    model = tiny_model()
    model.get_output_embeddings = lambda: None
    policy = CausalLM(model, tiny_tokenizer(), shares_prompts=False, precision="bfloat16")
    assert policy.precision == "float32"
    assert [record.getMessage() for record in caplog.records] == [
        "the vocabulary head of LlamaForCausalLM is not a layer of its own; all of it computes in "
        "float32"
    ]
    wanted = policy_in("float32", shares=False).score(ragged_batch(), 1.0).log_probs
    assert torch.equal(policy.score(ragged_batch(), 1.0).log_probs, wanted)


# Runs


def train(*arguments: object) -> int:
    return main(["train", *map(str, arguments)])


def test_automatic_is_bfloat16_on_a_gpu_only():
    assert [choose_precision("auto", device) for device in ("cpu", "mps", "cuda", "cuda:1")] == [
        "float32", "float32", "bfloat16", "bfloat16",
    ]  # fmt: skip
    assert choose_precision("float32", "cuda") == "float32"
    assert choose_precision("bfloat16", "cpu") == "bfloat16"


def test_automatic_on_a_cpu_is_the_run_in_float32(tmp_path):
    config = write_tiny_run(tmp_path)
    runs = [tmp_path / "auto", tmp_path / "float32"]
    for run in runs:
        assert train(config, "--run.folder", run, "--model.precision", run.name) == 0
        decisions = json.loads((run / "environment.json").read_text())["decisions"]
        assert decisions["precision"] == "float32"
    assert_same_run(*runs)


def test_a_resumed_run_in_bfloat16_is_the_same_run(tmp_path):
    options = [write_tiny_run(tmp_path), "--model.precision", "bfloat16"]
    assert train(*options, "--run.folder", tmp_path / "whole") == 0
    assert train(*options, "--run.folder", tmp_path / "run", "--run.steps", 4) == 0
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["decisions"]["precision"] == "bfloat16"
    assert environment["reasons"]["precision"] == 'model.precision = "bfloat16"'
    assert train("--resume", tmp_path / "run", "--run.steps", 8) == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_run_in_bfloat16_learns(tmp_path):
    config = write_tiny_run(tmp_path)
    run = tmp_path / "run"
    options = ["--run.steps", 30, "--evaluation.problems", 0, "--model.precision", "bfloat16"]
    assert train(config, "--run.folder", run, *options) == 0
    rewards = [line["reward/mean"] for line in read_jsonl(run / "metrics.jsonl")]
    assert sum(rewards[:5]) / 5 < 0.6
    assert sum(rewards[-5:]) / 5 > 0.9


def test_a_table_in_bfloat16_is_refused(tmp_path: Path):
    file = tmp_path / "toy.toml"
    file.write_text('task = "toy"\nmodel = {name = "tabular", precision = "bfloat16"}\n')
    with pytest.raises(ConfigError, match=r"remove model\.precision"):
        load_config(file)
