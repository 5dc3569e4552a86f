"""The preflight: what it makes, what it chooses, and that nothing is left of it."""

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ragged import preset, prompts_of
from running import TOY, assert_same_run, write_tiny_run
from tiny import VOCABULARY, tiny_model, tiny_policy, tiny_tokenizer

from verigrad import machine
from verigrad.batch import Tokens
from verigrad.cli import main
from verigrad.config import Config, load_config
from verigrad.errors import MemoryLimitError
from verigrad.policies.base import TokenScores
from verigrad.policies.causal_lm import CausalLM
from verigrad.training import preflight as preflights
from verigrad.training import setup as preparation
from verigrad.training.preflight import Preflight, bounded, largest_group, preflight
from verigrad.training.setup import prepare
from verigrad.training.trial import Shape, Taken, try_pass

PROMPTS = prompts_of(4, 9, 6)


def config_with(**keys: Any) -> Config:
    sizes = {"sampling.completions": 5, "sampling.problems": 2, "sampling.max_new_tokens": 12}
    given = {name.replace("__", "."): value for name, value in keys.items()}
    return load_config(TOY, [(name, str(value)) for name, value in (sizes | given).items()])


def fly(
    policy: CausalLM | None = None, *, budget: int | None = None, algorithm: str = "grpo",
    **keys: Any,
) -> Preflight:  # fmt: skip
    policy = tiny_policy() if policy is None else policy
    return preflight(policy, preset(algorithm), PROMPTS, config_with(**keys), "cpu", budget)


# Its shape


def test_the_largest_group_has_the_longest_prompt_and_the_longest_completions():
    group = largest_group(PROMPTS, config_with())
    assert group == Shape(prompt=PROMPTS[1], rows=5, length=12)
    assert group.tokens == 9 + 5 * 12


@pytest.mark.parametrize(("budget", "rows"), [(1, 1), (32, 1), (33, 2), (69, 5), (1000, 5)])
def test_a_pass_has_as_many_rows_as_the_budget_lets_in_and_one_at_least(budget, rows):
    assert largest_group(PROMPTS, config_with()).within(budget).rows == rows


def test_a_smaller_pass_has_shorter_sequences_and_as_many():
    group = largest_group(PROMPTS, config_with())
    quarter = group.scaled(0.25)
    assert (len(quarter.prompt.token_ids), quarter.rows, quarter.length) == (2, 5, 3)
    tiniest = group.scaled(1e-6)
    assert (len(tiniest.prompt.token_ids), tiniest.length) == (1, 1)


class Recording(CausalLM):
    """Keeps what it is asked to score."""

    seen: list[Tokens]

    def score(self, tokens: Tokens, temperature: float, **options: Any) -> TokenScores:
        self.seen.append(tokens)
        return super().score(tokens, temperature, **options)


def recording() -> Recording:
    policy = Recording(tiny_model(), tiny_tokenizer(), shares_prompts=True)
    policy.seen = []
    return policy


def test_the_last_of_three_passes_is_the_largest_shape_with_rows_that_share_nothing():
    policy = recording()
    fly(policy)
    first, second, whole = policy.seen
    assert [prompt.token_ids for prompt in whole.prompts] == [PROMPTS[1].token_ids]
    assert whole.mask.shape == (5, 12)
    assert whole.mask.all()
    assert len(set(whole.token_ids[:, 0].tolist())) == 5
    assert whole.token_ids.max() < VOCABULARY
    assert (first.mask.shape, second.mask.shape) == ((5, 1), (5, 3))


@pytest.mark.parametrize("algorithm", ["grpo", "gspo", "cispo", "dapo", "rloo", "reinforce_pp"])
def test_every_kind_of_loss_takes_part(algorithm):
    assert fly(algorithm=algorithm).token_budget == 1024


def test_a_divergence_and_an_entropy_bonus_take_part():
    algorithm = preset("grpo", kl="k3", kl_beta=0.1, entropy_coefficient=0.1)
    policy = recording()
    found = preflight(policy, algorithm, PROMPTS, config_with(), "cpu", None)
    batch = policy.seen[-1]
    assert found.token_budget == 1024
    assert torch.equal(batch.kl_weights, batch.weights)
    assert (batch.entropy_weights > 0).all()


# What is left of it


def test_no_gradient_no_weight_and_no_random_number_is_left():
    policy = tiny_policy()
    before = {name: value.clone() for name, value in policy.module.state_dict().items()}
    states = torch.get_rng_state(), random.getstate()
    fly(policy)
    assert all(value.grad is None for value in policy.module.parameters())
    assert all(
        torch.equal(value, before[name]) for name, value in policy.module.state_dict().items()
    )
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]


def test_a_run_with_a_preflight_is_bit_for_bit_one_without(tmp_path, monkeypatch):
    config = write_tiny_run(tmp_path)
    budget = ["--run.token-budget", "64"]

    def train(name: str) -> Path:
        assert main(["train", str(config), *budget, "--run.folder", str(tmp_path / name)]) == 0
        return tmp_path / name

    with_one = train("with")
    blank = Preflight(token_budget=64, watch=None, words="none was made")
    monkeypatch.setattr(preparation, "preflight", lambda *_: blank)
    assert_same_run(with_one, train("without"))


# What it chooses


@pytest.mark.parametrize(
    ("tokens", "device", "budget"),
    [(69, "cpu", 1024), (1100, "cpu", 1100), (9000, "cpu", 2048), (69, "cuda:1", 2048)],
)
def test_the_budget_is_the_largest_group_within_bounds(tokens, device, budget):
    assert bounded(tokens, device) == budget


def test_a_number_stays_a_number():
    assert fly(budget=77).token_budget == 77


WIDE = {"hidden_size": 128, "intermediate_size": 2048, "num_hidden_layers": 4, "head_dim": 32}
"""A model whose passes take more than a process's memory varies by: 170 kB a token."""

LONG = {"sampling__max_new_tokens": 100, "sampling__completions": 4}
"""Groups of 409 tokens, two in a step."""


@pytest.mark.thorough
def test_a_larger_pass_takes_about_what_two_smaller_ones_foretell():
    policy = CausalLM(tiny_model(**WIDE), tiny_tokenizer(), shares_prompts=True)
    seen = fly(policy, **LONG)
    group = largest_group(PROMPTS, config_with(**LONG))
    one = try_pass(policy, preset("grpo"), 1.0, "cpu", group)
    two = try_pass(policy, preset("grpo"), 1.0, "cpu", replace(group, rows=8))
    assert one.bytes is not None
    assert two.bytes is not None
    assert one.bytes > 40e6
    assert seen.watch is not None
    assert seen.watch.cost.bytes(two.tokens) == pytest.approx(two.bytes, rel=0.5)


TOKEN = 10**11
"""Bytes that a token is said to take, beside which what this process takes does not matter."""


@pytest.fixture
def tried(monkeypatch) -> list[int]:
    """The tokens of the passes that were tried, each of which takes TOKEN bytes a token."""
    tokens: list[int] = []

    def costly(*arguments: Any) -> Taken:
        shape = arguments[-1]
        tokens.append(shape.tokens)
        return Taken(tokens=shape.tokens, seconds=1.0, bytes=TOKEN * shape.tokens)

    monkeypatch.setattr(preflights, "try_pass", costly)
    return tokens


def limit(tokens: int) -> int:
    """What lets passes of so many tokens through, and none of more."""
    return TOKEN * tokens + TOKEN // 2


def test_a_budget_that_memory_has_no_room_for_is_halved(tried):
    assert fly(run__memory_limit=limit(818), **LONG).token_budget == 1024
    assert fly(run__memory_limit=limit(817), **LONG).token_budget == 512
    assert fly(run__memory_limit=limit(511), **LONG).token_budget == 256
    found = fly(run__memory_limit=limit(110), **LONG)
    assert found.token_budget == 64
    # A row of its own is a pass of 109 tokens.
    assert re.fullmatch(
        r"preflight: a pass of 110 tokens takes 1 s and 11000.0 GB; at most 64 tokens in a pass, "
        r"with which about 1090\d\.\d GB of 11050.0 GB \(run.memory_limit\) are used",
        found.words,
    )


def test_a_budget_that_is_given_is_not_halved_before_it_is_used(tried):
    found = fly(budget=512, run__memory_limit=limit(320), **LONG)
    assert found.token_budget == 512
    assert found.words.endswith("(run.memory_limit) would be used, so they will get smaller")


@pytest.mark.parametrize(("room", "largest"), [(1000, 409), (409, 409), (300, 300), (110, 110)])
def test_no_pass_is_tried_that_would_go_beyond_the_limit(room, largest, tried):
    fly(run__memory_limit=limit(room), **LONG)
    assert tried[:2] == [25, 102]
    assert largest - 4 <= max(tried) <= largest


@pytest.mark.parametrize(("room", "largest"), [(60, 60), (10, 25)])
def test_nor_is_one_where_no_completion_fits_but_the_first(room, largest, tried):
    with pytest.raises(MemoryLimitError, match="a single completion with its prompt"):
        fly(run__memory_limit=limit(room), **LONG)
    assert tried[0] == 25
    assert largest - 4 <= max(tried) <= largest


def test_a_completion_that_does_not_fit_is_refused_with_the_numbers(tried):
    policy = tiny_policy()
    with pytest.raises(
        MemoryLimitError,
        match=r"single completion with its prompt may have 109 tokens, .* 1090\d\.\d GB of memory",
    ):
        fly(policy, run__memory_limit=limit(108), **LONG)
    assert max(tried) <= 109
    assert all(value.grad is None for value in policy.module.parameters())


# Where the system says less, or the device raises


def test_where_the_system_does_not_say_nothing_is_watched(monkeypatch):
    monkeypatch.setattr(machine, "resident", lambda: None)
    monkeypatch.setattr(machine, "memory", lambda: None)
    found = fly()
    assert found.watch is None
    assert found.token_budget == 1024
    assert found.words.endswith(
        "; memory is not watched: this system does not say how much there is and is taken"
    )


class Small(CausalLM):
    """A model on a device that has room for so many tokens of completions."""

    room: int

    def score(self, tokens: Tokens, temperature: float, **options: Any) -> TokenScores:
        if int(tokens.lengths.sum()) > self.room:
            raise torch.OutOfMemoryError("out of memory")
        return super().score(tokens, temperature, **options)


@pytest.fixture
def small() -> Callable[[int], Small]:
    def small(room: int) -> Small:
        policy = Small(tiny_model(), tiny_tokenizer(), shares_prompts=True)
        policy.room = room
        return policy

    return small


def test_a_device_without_room_for_the_largest_pass_is_judged_by_the_small_one(small):
    found = fly(small(20))
    assert found.words.startswith("preflight: a pass of 17 tokens takes")
    assert found.watch is not None


def test_a_device_without_room_for_a_small_pass_is_refused(small):
    with pytest.raises(MemoryLimitError, match=r"memory ran out in a first pass of 17 tokens"):
        fly(small(10))


# In a run


def test_a_table_needs_none():
    assert prepare(load_config(TOY)).preflight is None


def test_the_choice_is_a_decision_with_its_reason_and_a_resume_takes_it(tmp_path, capsys):
    config = write_tiny_run(tmp_path)
    run = tmp_path / "run"
    assert main(["train", str(config), "--run.folder", str(run)]) == 0
    told = capsys.readouterr().err
    environment = json.loads((run / "environment.json").read_text())
    assert environment["decisions"]["token_budget"] == 1024
    reason = environment["reasons"]["token_budget"]
    assert reason.startswith("preflight: a pass of ")
    assert told.count(reason) == 1
    environment["decisions"]["token_budget"] = 300
    resumed = prepare(
        load_config(run / "config.toml"),
        decided=preparation.Decisions(**environment["decisions"]),
    )
    assert resumed.decisions.token_budget == 300
    assert resumed.reasons == {}
