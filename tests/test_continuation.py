"""Generating token by token: what comes out is what the plain model says of each sequence alone."""

from collections.abc import Sequence

import pytest
import torch
from ragged import as_prompts, prompts_of
from tiny import KINDS, POSITIONS, WINDOW, tiny_model, tiny_policy
from transformers import PreTrainedModel

from verigrad.engines import Draws, LocalEngine
from verigrad.hashing import Purpose
from verigrad.policies.base import Continuation
from verigrad.policies.continuation import (
    PROMPT_TOKENS_AT_ONCE,
    PlainContinuation,
    SharedContinuation,
)
from verigrad.policies.forward import plain_logits
from verigrad.types import Completion, Finish, Prompt, Sampling

DRAWS = Draws(seed=0, purpose=Purpose.EVALUATE, step=0)
PROMPT_LENGTHS = (1, 9, 3, 2)
TOKENS = 12


@torch.no_grad()
def next_logits(model: PreTrainedModel, token_ids: Sequence[int]) -> torch.Tensor:
    """The plain forward pass over one whole sequence, without a cache."""
    return model(input_ids=torch.tensor([list(token_ids)]), use_cache=False).logits[0, -1]


def greedy_alone(model: PreTrainedModel, prompt: Prompt, tokens: int) -> tuple[int, ...]:
    """Greedy decoding by repeated plain forward passes."""
    ids = list(prompt.token_ids)
    for _ in range(tokens):
        ids.append(int(next_logits(model, ids).argmax()))
    return tuple(ids[len(prompt.token_ids) :])


def greedy_by_engine(
    kind: str, *, shares_prompts: bool, stop_token_ids: tuple[int, ...] = ()
) -> list[Completion]:
    policy = tiny_policy(kind, dtype=torch.float64, shares_prompts=shares_prompts)
    sampling = Sampling(temperature=0.0, max_new_tokens=TOKENS, stop_token_ids=stop_token_ids)
    rows = LocalEngine(policy).generate(prompts_of(*PROMPT_LENGTHS), 1, sampling, DRAWS)
    return [row for (row,) in rows]


@pytest.mark.parametrize("shares_prompts", [True, False])
@pytest.mark.parametrize("kind", [*KINDS, "mistral"])
def test_greedy_decoding_is_that_of_each_sequence_alone(kind, shares_prompts):
    model = tiny_model(kind, dtype=torch.float64)
    wanted = [greedy_alone(model, prompt, TOKENS) for prompt in prompts_of(*PROMPT_LENGTHS)]
    assert len(set(wanted)) == len(wanted)
    found = greedy_by_engine(kind, shares_prompts=shares_prompts)
    assert [row.token_ids for row in found] == wanted


@pytest.mark.parametrize("shares_prompts", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_leave_do_not_disturb_the_others(kind, shares_prompts):
    model = tiny_model(kind, dtype=torch.float64)
    alone = [greedy_alone(model, prompt, TOKENS) for prompt in prompts_of(*PROMPT_LENGTHS)]
    stop = alone[1][4]
    wanted = [ids[: ids.index(stop) + 1] if stop in ids else ids for ids in alone]
    assert len({len(ids) for ids in wanted}) > 1
    found = greedy_by_engine(kind, shares_prompts=shares_prompts, stop_token_ids=(stop,))
    assert [row.token_ids for row in found] == wanted
    finishes = [Finish.STOPPED if ids[-1] == stop else Finish.TRUNCATED for ids in wanted]
    assert [row.finish for row in found] == finishes


def follow(rows: Continuation, model: PreTrainedModel, sequences: list[list[int]]) -> None:
    """Compare the logits of every live row with those of its sequence run alone."""
    logits, states = rows.logits()
    found = logits[states]
    assert len(found) == len(sequences)
    wanted = torch.stack([next_logits(model, ids) for ids in sequences])
    assert float((found - wanted).abs().max()) < 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [SharedContinuation, PlainContinuation])
@torch.no_grad()
def test_logits_are_those_of_the_sequence_while_rows_leave_one_after_another(kind, way):
    model = tiny_model(kind)
    prompts = [list(prompt.token_ids) for prompt in prompts_of(2, 6)]
    rows = way(model, as_prompts(prompts), 3)
    sequences = [list(ids) for ids in prompts for _ in range(3)]
    generator = torch.Generator().manual_seed(3)
    for kept in ([0, 1, 2, 3, 4, 5], [0, 2, 3, 5], [1, 3], [0, 1], [1], [0], [0], [0]):
        follow(rows, model, sequences)
        tokens = torch.randint(64, (len(kept),), generator=generator)
        rows.advance(torch.tensor(kept), tokens)
        sequences = [
            [*sequences[row], token] for row, token in zip(kept, tokens.tolist(), strict=True)
        ]
    assert len(sequences[0]) > 2 * WINDOW
    follow(rows, model, sequences)


@torch.no_grad()
def test_rows_that_have_been_the_same_so_far_are_one_until_they_part():
    model = tiny_model("llama")
    rows = SharedContinuation(model, as_prompts([[3, 1], [4]]), 3)
    sequences = [[3, 1], [3, 1], [3, 1], [4], [4], [4]]
    # Of the first prompt's rows two go on alike, part, and are not one again with equal tokens.
    steps = [([0, 1, 2, 3, 4, 5], [7, 8, 7, 7, 7, 7], 3), ([0, 1, 2, 3, 5], [6, 6, 5, 6, 6], 4)]
    steps += [([0, 2, 3, 4], [9, 9, 9, 9], 3)]
    for kept, tokens, distinct in steps:
        rows.advance(torch.tensor(kept), torch.tensor(tokens))
        sequences = [[*sequences[row], token] for row, token in zip(kept, tokens, strict=True)]
        assert len(rows.logits()[0]) == distinct == len({tuple(ids) for ids in sequences})
        follow(rows, model, sequences)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt2"])
@torch.no_grad()
def test_prompts_too_long_to_run_side_by_side_are_continued_alike(kind):
    model = tiny_model(kind)
    prompts = [list(prompt.token_ids) for prompt in prompts_of(300, 280, 5, POSITIONS - 2)]
    assert sum(len(ids) for ids in prompts) > 2 * PROMPT_TOKENS_AT_ONCE
    rows = SharedContinuation(model, as_prompts(prompts), 2)
    rows.advance(torch.arange(8), torch.full((8,), 7))
    follow(rows, model, [[*ids, 7] for ids in prompts for _ in range(2)])


def test_plain_logits_predict_the_tokens_from_an_index_on():
    model = tiny_model("llama")
    with torch.no_grad():
        logits = plain_logits(model, [3, 1, 4, 1, 5], 3)
    assert logits.shape == (2, 64)
    assert torch.allclose(logits[0], next_logits(model, [3, 1, 4]), atol=1e-5)
    assert torch.allclose(logits[1], next_logits(model, [3, 1, 4, 1]), atol=1e-5)
