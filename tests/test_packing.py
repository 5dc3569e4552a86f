"""Prompts and completions laid end to end, and which token may attend to which."""

from typing import Any

import pytest
import torch
from golden import cases
from tiny import tiny_model

from verigrad.policies.continuation import SharedContinuation
from verigrad.policies.packing import (
    PROMPT,
    Packed,
    additive,
    join,
    may_attend,
    pack_completions,
    pack_prompts,
)


def prompts_and_completions(
    prompt_lengths: list[int], completion_lengths: list[int], group_index: list[int]
) -> tuple[Packed, Packed]:
    """Every token of some prompts and of some completions, numbered from 10 and from 20."""
    token = iter(range(10, 20))
    prompts = pack_prompts([[next(token) for _ in range(n)] for n in prompt_lengths], "cpu")
    lengths = torch.tensor(completion_lengths)
    fed = torch.arange(max(completion_lengths)) < lengths.unsqueeze(1)
    ids = torch.zeros(fed.shape, dtype=torch.int64).masked_scatter(
        fed, torch.arange(20, 20 + sum(completion_lengths))
    )
    completions = pack_completions(
        ids, fed, torch.tensor(group_index), torch.tensor(prompt_lengths)
    )
    return prompts, completions


def matrix(allowed: torch.Tensor) -> list[list[int]]:
    return allowed.int().tolist()


def test_two_completions_share_a_prompt_without_seeing_each_other():
    prompts, completions = prompts_and_completions([2], [2, 1], [0, 0])
    row = join(prompts, completions)
    assert row.token_ids.tolist() == [10, 11, 20, 21, 22]
    assert row.position.tolist() == [0, 1, 2, 3, 2]
    assert row.row.tolist() == [PROMPT, PROMPT, 0, 0, 1]
    assert matrix(may_attend(row, row, None)) == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


@pytest.mark.parametrize(("inputs", "expected"), cases("layout"))
def test_golden_layout_of_a_shared_prompt(inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    lengths = inputs["completion_lens"]
    prompts, completions = prompts_and_completions(
        [inputs["prompt_len"]], lengths, [0] * len(lengths)
    )
    row = join(prompts, completions)
    assert row.position.tolist() == expected["position_ids"]
    assert matrix(may_attend(row, row, None)) == expected["allowed"]


@pytest.mark.parametrize(("inputs", "expected"), cases("positions_packed"))
def test_golden_positions_restart_with_every_sequence(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    lengths = inputs["lengths"]
    packed = pack_prompts([[7] * length for length in lengths], "cpu")
    assert packed.position.tolist() == expected["position_ids"]
    ends = expected["cu_seqlens"]
    # A sequence is told by its number: positions 0, 0 would merge sequences of one token.
    assert packed.group.tolist() == [
        group for group in range(len(lengths)) for _ in range(ends[group], ends[group + 1])
    ]


@pytest.mark.parametrize(("inputs", "expected"), cases("positions_left_pad"))
def test_golden_positions_of_prompts_that_stand_right_aligned(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The first row has two columns of padding, two tokens of prompt fewer, and ends early."""
    attended = torch.tensor(inputs["attention_mask"]).bool()
    width = 4
    prompts = [[3] * int(row[:width].sum()) for row in attended]
    rows = SharedContinuation(tiny_model("llama"), prompts, 1)
    for _ in range(attended.shape[1] - width):
        rows.advance(torch.arange(2), torch.tensor([4, 4]))
    wanted = torch.tensor(expected["position_ids"])
    positions = rows._key_positions
    assert torch.equal(positions[attended], wanted[attended])
    assert (positions < 0)[:, :width].tolist() == (~attended[:, :width]).tolist()


def test_the_prompt_part_and_the_completion_part_are_the_rows_of_the_whole_matrix():
    prompts, completions = prompts_and_completions([2], [2, 1], [0, 0])
    keys = join(prompts, completions)
    whole = may_attend(keys, keys, None)
    assert torch.equal(may_attend(completions, keys, None), whole[2:])
    assert torch.equal(may_attend(prompts, prompts, None), whole[:2, :2])


def test_a_completion_sees_its_own_prompt_only():
    prompts, completions = prompts_and_completions([1, 2], [1, 2, 1], [1, 0, 1])
    row = join(prompts, completions)
    assert row.group.tolist() == [0, 1, 1, 1, 0, 0, 1]
    assert row.position.tolist() == [0, 0, 1, 2, 1, 2, 2]
    assert matrix(may_attend(completions, row, None)) == [
        [0, 1, 1, 1, 0, 0, 0],
        [1, 0, 0, 0, 1, 0, 0],
        [1, 0, 0, 0, 1, 1, 0],
        [0, 1, 1, 0, 0, 0, 1],
    ]


def test_a_sliding_window_counts_positions_and_not_places_in_the_row():
    prompts, completions = prompts_and_completions([3], [2, 2], [0, 0])
    row = join(prompts, completions)
    assert row.position.tolist() == [0, 1, 2, 3, 4, 3, 4]
    assert matrix(may_attend(row, row, 2)) == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [0, 0, 1, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1, 1],
    ]


def test_only_the_tokens_that_are_fed_are_laid_out():
    ids = torch.tensor([[5, 6, 7], [8, 0, 0], [9, 3, 0]])
    fed = torch.tensor([[True, True, False], [False, False, False], [True, False, False]])
    packed = pack_completions(ids, fed, torch.tensor([0, 0, 1]), torch.tensor([4, 1]))
    assert packed.token_ids.tolist() == [5, 6, 9]
    assert packed.row.tolist() == [0, 0, 2]
    assert packed.group.tolist() == [0, 0, 1]
    assert packed.position.tolist() == [4, 5, 1]


def test_prompts_of_one_token_each_start_at_position_zero():
    packed = pack_prompts([[7], [7], [8, 9]], "cpu")
    assert packed.position.tolist() == [0, 0, 0, 1]
    assert packed.group.tolist() == [0, 1, 2, 2]
    assert matrix(may_attend(packed, packed, None)) == [
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 1, 1],
    ]


def test_the_additive_mask_is_zero_or_the_lowest_number_of_its_dtype():
    mask = additive(torch.tensor([[True, False]]), torch.float32)
    assert mask.dtype == torch.float32
    assert mask.tolist() == [[0.0, -3.4028234663852886e38]]
