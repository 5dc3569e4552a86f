"""A language model through engine and update: what is computed, and that both mean one policy."""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ragged import (
    completion_of,
    counted_positions,
    group_of,
    largest,
    preset,
    prompts_of,
    ragged_groups,
    update_once,
)
from steps import judge
from tiny import KINDS, STOP, constant_policy, save_tiny_model, tiny_policy, tiny_tokenizer

from verigrad.batch import make_batch
from verigrad.engines import Draws, LocalEngine
from verigrad.engines.local import ROWS_AT_ONCE
from verigrad.hashing import Purpose
from verigrad.policies.causal_lm import CausalLM
from verigrad.policies.models import load_model
from verigrad.training.step import update
from verigrad.types import Finish, Problem, Prompt, Sampling
from verigrad.verifiers.runner import InProcess

STOPS = (STOP, *range(6, 16))
"""The tokenizer's own, and every digit: a completion stops after some six tokens."""

DRAWS = Draws(seed=0, purpose=Purpose.TRAIN, step=0)
PROMPTS = prompts_of(2, 9, 4)
PROBLEMS = [Problem(id=prompt.problem_id, prompt="", reference=None) for prompt in PROMPTS]


def variety(completion: str, reference: object) -> float:
    """How many characters a completion has that differ."""
    return float(len(set(completion)))


def ones(completion: str, reference: object) -> float:
    """How often a completion says 1."""
    return float(completion.count("1"))


def sampling(temperature: float = 1.0, stop_token_ids: tuple[int, ...] = STOPS) -> Sampling:
    return Sampling(temperature=temperature, max_new_tokens=6, stop_token_ids=stop_token_ids)


# The prompt is computed once


def beginnings(sequences: Iterable[Sequence[int]]) -> set[tuple[int, ...]]:
    """Everything that some sequence begins with, itself included."""
    return {tuple(ids[:length]) for ids in sequences for length in range(1, len(ids) + 1)}


@pytest.mark.parametrize("kind", KINDS)
def test_generation_runs_each_distinct_beginning_once_and_the_last_token_not_at_all(kind):
    """The last token of a completion predicts nothing, so it is never fed."""
    policy = tiny_policy(kind)
    with counted_positions(policy) as positions:
        groups = LocalEngine(policy).generate(PROMPTS, 12, sampling(), DRAWS)
    completions = list(itertools.chain(*groups))
    assert len({len(completion.token_ids) for completion in completions}) > 2
    assert {completion.finish for completion in completions} == set(Finish)
    run = [beginnings(row.token_ids[:-1] for row in rows) for rows in groups]
    assert sum(map(len, run)) < sum(len(row.token_ids) - 1 for row in completions)
    assert positions.entered == 2 + 9 + 4 + sum(map(len, run))
    assert positions.through_head == 3 + sum(map(len, run))


@pytest.mark.parametrize("kind", KINDS)
def test_training_runs_each_distinct_beginning_of_groups_with_signal_once_and_others_not_at_all(
    kind,
):
    policy = tiny_policy(kind)
    groups = ragged_groups()
    silent = group_of(
        Prompt(problem_id="silent", token_ids=(5, 6, 7, 8)),
        [completion_of([9, 9, 9]), completion_of([8])],
        [1.0, 1.0],
    )
    batch = make_batch([groups[0], silent, groups[1], groups[2]], preset("grpo"))
    assert len(batch.prompts) == 4
    with counted_positions(policy) as positions:
        done = update_once(policy, batch)
    assert done.passes == 1
    assert done.prompt_tokens == 1 + 9 + 3
    # These prompts and completions have nothing in common.
    tokens = (3 + 1 + 7) + (5 + 6 + 1 + 2) + (1 + 1)
    assert positions.entered == 1 + 9 + 3 + tokens - 9
    assert positions.through_head == tokens


def test_training_runs_what_prompts_or_completions_begin_with_together_once():
    """Prompts (3, 4) and (3, 5); of the first, completions (6, 7, 2), (6, 7, 8) and (6, 7, 2)."""
    policy = tiny_policy()
    first = Prompt(problem_id="first", token_ids=(3, 4))
    second = Prompt(problem_id="second", token_ids=(3, 5))
    alike = [completion_of([6, 7, 2]), completion_of([6, 7, 8]), completion_of([6, 7, 2])]
    other = [completion_of([6, 2]), completion_of([7])]
    groups = [group_of(first, alike, [1.0, 0.0, 0.0]), group_of(second, other, [1.0, 0.0])]
    with counted_positions(policy) as positions:
        done = update_once(policy, make_batch(groups, preset("grpo")))
    assert done.output.tokens == 9 + 3
    assert positions.entered == len({(3,), (3, 4), (3, 4, 6), (3, 4, 6, 7), (3, 5), (3, 5, 6)})
    # Tokens 6, 7, 2 and 8 after the first prompt, and 6, 2 and 7 after the second.
    assert positions.through_head == 4 + 3


def test_training_on_groups_without_signal_only_runs_nothing_and_moves_nothing():
    policy = tiny_policy()
    before = {name: values.clone() for name, values in policy.module.state_dict().items()}
    silent = group_of(PROMPTS[0], [completion_of([9, 9]), completion_of([8])], [1 / 3, 1 / 3])
    with counted_positions(policy) as positions:
        assert update_once(policy, make_batch([silent], preset("grpo"))) is None
    assert (positions.entered, positions.through_head) == (0, 0)
    for name, values in policy.module.state_dict().items():
        assert torch.equal(values, before[name])


def test_a_group_that_is_cut_runs_its_prompt_once():
    """Prompt of 9, completions of 5, 6, 1 and 2 tokens: 9 + 5 + 6 fill a budget of 20."""
    policy = tiny_policy()
    batch = make_batch([ragged_groups()[1]], preset("grpo"))
    with counted_positions(policy) as positions:
        done = update_once(policy, batch, token_budget=20)
    assert done.passes == 2
    assert done.prompt_tokens == 9
    assert positions.entered == 9 + (5 - 1) + (6 - 1) + (1 - 1) + (2 - 1)
    assert positions.through_head == 5 + 6 + 1 + 2


# Sampler and trainer mean the same policy


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_sampling_log_probs_are_the_policys_after_every_update(kind, temperature):
    policy = tiny_policy(kind)
    engine, algorithm = LocalEngine(policy), preset("grpo")
    optimizer = torch.optim.AdamW(policy.module.parameters(), lr=1e-2)
    for version in range(4):
        engine.sync(version)
        completions = engine.generate(
            PROMPTS, 4, sampling(temperature), replace(DRAWS, step=version)
        )
        assert {row.policy_version for rows in completions for row in rows} == {version}
        batch = make_batch(judge(InProcess(variety), PROBLEMS, PROMPTS, completions), algorithm)
        before = policy.score(batch, temperature).log_probs.detach()
        assert largest(before - batch.sampling_log_probs) < 1e-5
        done = update(
            policy, batch, algorithm, optimizer,
            temperature=temperature, clip_norm=1.0, token_budget=12,
        )  # fmt: skip
        assert done.passes > 1
        assert done.output.largest_mismatch < 1e-5
        assert largest(policy.score(batch, temperature).log_probs.detach() - before) > 0.1


@pytest.mark.parametrize("shares_prompts", [True, False])
def test_greedy_log_probs_are_those_of_the_untempered_policy(shares_prompts):
    policy = tiny_policy(dtype=torch.float64, shares_prompts=shares_prompts)
    completions = LocalEngine(policy).generate(PROMPTS, 1, sampling(0.0), DRAWS)
    groups = [group_of(p, rows, [1.0]) for p, rows in zip(PROMPTS, completions, strict=True)]
    batch = make_batch(groups, preset("rloo"), dtype=torch.float64)
    assert largest(policy.score(batch, 1.0).log_probs - batch.sampling_log_probs) < 1e-6


# Where completions end


def test_any_of_several_stop_tokens_ends_a_completion_and_belongs_to_it():
    groups = LocalEngine(tiny_policy()).generate(PROMPTS, 20, sampling(), DRAWS)
    ends = set()
    for row in itertools.chain(*groups):
        assert not set(row.token_ids[:-1]) & set(STOPS)
        if row.finish is Finish.STOPPED:
            ends.add(row.token_ids[-1])
        else:
            assert len(row.token_ids) == 6
            assert row.token_ids[-1] not in STOPS
    assert len(ends) > 2
    assert ends <= set(STOPS)


def test_without_a_stop_token_every_completion_is_truncated():
    rows = itertools.chain(
        *LocalEngine(tiny_policy()).generate(PROMPTS, 4, sampling(1.0, ()), DRAWS)
    )
    assert {(row.finish, len(row.token_ids)) for row in rows} == {(Finish.TRUNCATED, 6)}


# Which numbers are drawn


def test_a_completion_depends_on_its_own_place_only():
    """Fewer prompts or fewer completions beside it change nothing."""
    engine = LocalEngine(tiny_policy(dtype=torch.float64))
    whole = engine.generate(PROMPTS, 4, sampling(), DRAWS)
    assert len({row.token_ids for rows in whole for row in rows}) > 8
    few = engine.generate(PROMPTS[:2], 3, sampling(), DRAWS)
    for rows, all_rows in zip(few, whole[:2], strict=True):
        assert [row.token_ids for row in rows] == [row.token_ids for row in all_rows[:3]]


def test_more_rows_than_run_at_once_are_generated_alike():
    prompts = prompts_of(*([3, 1, 5] * 12))
    engine = LocalEngine(tiny_policy(dtype=torch.float64))
    assert len(prompts) * 10 > ROWS_AT_ONCE
    many = engine.generate(prompts, 10, sampling(), DRAWS)
    few = engine.generate(prompts, 2, sampling(), DRAWS)
    for rows, all_rows in zip(few, many, strict=True):
        assert [row.token_ids for row in rows] == [row.token_ids for row in all_rows[:2]]


# Tokens stay the tokens that were sampled


def test_tokens_are_never_made_again_from_text():
    """The tokens "1", "2" decode to "12", which is one token of its own."""
    tokenizer = tiny_tokenizer()
    one, two, twelve = tokenizer.convert_tokens_to_ids(["1", "2", "12"])
    assert tokenizer.encode(tokenizer.decode([one, two])) == [twelve]
    policy = constant_policy([0.0 if token in (one, two) else -50.0 for token in range(64)])
    completions = LocalEngine(policy).generate(PROMPTS, 4, sampling(1.0, ()), DRAWS)
    rows = list(itertools.chain(*completions))
    changed = [row for row in rows if (one, two) in itertools.pairwise(row.token_ids)]
    assert changed
    for row in changed:
        assert tuple(tokenizer.encode(row.text)) != row.token_ids
    batch = make_batch(judge(InProcess(ones), PROBLEMS, PROMPTS, completions), preset("grpo"))
    for ids, length, row in zip(batch.token_ids, batch.lengths.tolist(), rows, strict=True):
        assert tuple(ids[:length].tolist()) == row.token_ids
    assert batch.prompts == tuple(PROMPTS)
    assert largest(policy.score(batch, 1.0).log_probs - math.log(1 / 2)) < 1e-6


# A folder, end to end


@pytest.mark.parametrize("pad", [True, False])
@pytest.mark.parametrize("template", [True, False])
def test_a_tokenizer_without_padding_token_or_template_works(template, pad, tmp_path: Path):
    loaded = load_model(str(save_tiny_model(tmp_path, template=template, pad=pad)), device="cpu")
    assert (loaded.tokenizer.pad_token is not None) is pad
    policy = CausalLM(loaded.model, loaded.tokenizer)
    assert policy.stop_token_ids == (STOP,)
    problems = [
        Problem(id=f"addition/{n}+12", prompt=f"What is {n} + 12?", reference=n + 12)
        for n in (1, 20)
    ]
    prompts = [policy.encode(problem) for problem in problems]
    text = policy.decode(prompts[1].token_ids)
    assert text == ("user\nwhat is 20 + 12?assistant\n" if template else "what is 20 + 12?")
    completions = LocalEngine(policy).generate(
        prompts, 4, sampling(1.0, policy.stop_token_ids), DRAWS
    )
    batch = make_batch(judge(InProcess(variety), problems, prompts, completions), preset("grpo"))
    before = policy.score(batch, 1.0).log_probs.detach()
    done = update_once(policy, batch)
    assert done.output.largest_mismatch < 1e-5
    assert largest(policy.score(batch, 1.0).log_probs.detach() - before) > 1e-3
