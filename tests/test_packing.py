"""Prompts and completions laid end to end, and which token may attend to which."""

from typing import Any

import pytest
import torch
from golden import cases
from hypothesis import given
from hypothesis import strategies as st
from ragged import as_prompts
from tiny import tiny_model

from verigrad.policies.attention import additive
from verigrad.policies.continuation import SharedContinuation
from verigrad.policies.packing import SMALL, Packed, blocks_of, may_attend, pack

SEQUENCES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=6), min_size=1, max_size=8)


def attended(row: Packed, window: int | None = None, small: int = SMALL) -> torch.Tensor:
    """Which token attends to which, ``[N, N]``, put together from the blocks of the row."""
    count = len(row.end)
    allowed = torch.zeros(count, count, dtype=torch.bool)
    blocks = blocks_of(row.end.tolist(), small)
    assert [place for b in blocks for place in range(b.start, b.stop)] == list(range(count))
    for block in blocks:
        before = [blocks[number] for number in block.before]
        keys = [place for b in (*before, block) for place in range(b.start, b.stop)]
        some = may_attend(row, block, before, window)
        size = block.stop - block.start
        allowed[block.start : block.stop, keys] = (
            torch.ones(size, size).tril().bool() if some is None else some
        )
    return allowed


def matrix(allowed: torch.Tensor) -> list[list[int]]:
    return allowed.int().tolist()


def told(packed: Packed) -> list[list[int]]:
    return [packed.token_ids.tolist(), packed.position.tolist(), packed.end.tolist()]


def test_two_completions_share_a_prompt_without_seeing_each_other():
    row, places = pack([[10, 11, 20, 21], [10, 11, 22]], "cpu")
    assert told(row) == [[10, 11, 20, 21, 22], [0, 1, 2, 3, 2], [5, 5, 4, 4, 5]]
    assert places[0].tolist() == [0, 1, 2, 3]
    assert places[1, :3].tolist() == [0, 1, 4]
    assert matrix(attended(row)) == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


@pytest.mark.parametrize(("inputs", "expected"), cases("layout"))
def test_golden_layout_of_a_shared_prompt(inputs: dict[str, Any], expected: dict[str, Any]) -> None:
    """The completions' tokens are numbered from 20, so that they have nothing in common."""
    token = iter(range(20, 40))
    prompt = list(range(10, 10 + inputs["prompt_len"]))
    row, places = pack(
        [[*prompt, *(next(token) for _ in range(n))] for n in inputs["completion_lens"]], "cpu"
    )
    assert row.position.tolist() == expected["position_ids"]
    assert matrix(attended(row)) == expected["allowed"]
    assert [
        places[index, len(prompt) - 1 : len(prompt) - 1 + n].tolist()
        for index, n in enumerate(inputs["completion_lens"])
    ] == expected["predictor_index"]


@pytest.mark.parametrize(("inputs", "expected"), cases("positions_packed"))
def test_golden_positions_restart_with_every_sequence(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Each sequence is of tokens of its own; positions 0, 0 do not merge those of one token."""
    packed, places = pack([[7 + i] * n for i, n in enumerate(inputs["lengths"])], "cpu")
    assert packed.position.tolist() == expected["position_ids"]
    ends = expected["cu_seqlens"]
    assert [packed.end[row[0]].item() for row in places] == ends[1:]
    assert [row[0].item() for row in places] == ends[:-1]


@pytest.mark.parametrize(("inputs", "expected"), cases("positions_left_pad"))
def test_golden_positions_of_prompts_that_stand_right_aligned(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The first row has two columns of padding, two tokens of prompt fewer, and ends early."""
    attended = torch.tensor(inputs["attention_mask"]).bool()
    width = 4
    prompts = [[3] * int(row[:width].sum()) for row in attended]
    rows = SharedContinuation(tiny_model("llama"), as_prompts(prompts), 1)
    for _ in range(attended.shape[1] - width):
        rows.advance(torch.arange(2), torch.tensor([4, 4]))
    wanted = torch.tensor(expected["position_ids"])
    positions = torch.cat([rows._prompts.positions, rows._columns.positions], dim=1)
    assert torch.equal(positions[attended], wanted[attended])
    assert (positions < 0)[:, :width].tolist() == (~attended[:, :width]).tolist()


def test_what_completions_begin_with_together_stands_in_the_row_once():
    row, places = pack([[1, 5, 6, 7], [1, 5, 6], [1, 5, 8], [1, 5, 6, 7]], "cpu")
    assert told(row) == [[1, 5, 6, 7, 8], [0, 1, 2, 3, 2], [5, 5, 4, 4, 5]]
    assert places.tolist()[0] == places.tolist()[3] == [0, 1, 2, 3]
    assert places[1, :3].tolist() == [0, 1, 2]
    assert places[2, :3].tolist() == [0, 1, 4]


def test_a_sliding_window_counts_positions_and_not_places_in_the_row():
    row, _ = pack([[10, 11, 12, 20, 21], [10, 11, 12, 22, 23]], "cpu")
    assert row.position.tolist() == [0, 1, 2, 3, 4, 3, 4]
    assert matrix(attended(row, 2)) == [
        [1, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 0, 0, 0],
        [0, 0, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [0, 0, 1, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 1, 1],
    ]


@given(SEQUENCES, st.sampled_from([1, 2, 4, SMALL]))
def test_each_distinct_beginning_is_there_once_and_sees_itself_and_no_other(sequences, small):
    row, places = pack(sequences, "cpu")
    allowed = attended(row, small=small)
    beginnings = {}
    for sequence, where in zip(sequences, places.tolist(), strict=True):
        for length in range(1, len(sequence) + 1):
            place = where[length - 1]
            assert beginnings.setdefault(tuple(sequence[:length]), place) == place
            assert row.position[place] == length - 1
            assert row.token_ids[place] == sequence[length - 1]
            assert allowed[place].nonzero().flatten().tolist() == where[:length]
    assert sorted(beginnings.values()) == list(range(len(row.token_ids)))


def test_the_additive_mask_is_zero_or_the_lowest_number_of_its_dtype():
    mask = additive(torch.tensor([[True, False]]), torch.float32)
    assert mask.dtype == torch.float32
    assert mask.tolist() == [[0.0, -3.4028234663852886e38]]


@given(SEQUENCES, st.integers(1, 4), st.sampled_from([1, 2, 4, SMALL]))
def test_a_window_takes_from_what_a_token_sees_all_that_is_too_far_back(sequences, window, small):
    row, _ = pack(sequences, "cpu")
    near = row.position.unsqueeze(1) - row.position < window
    assert torch.equal(attended(row, window, small), attended(row, small=small) & near)


def test_a_row_is_cut_where_it_branches():
    prompt, one, other = [1] * 200, [2] * 100, [3] * 100
    row, _ = pack([[*prompt, *one], [*prompt, *other]], "cpu")
    blocks = blocks_of(row.end.tolist())
    assert blocks == [(0, 200, (), False), (200, 300, (0,), False), (300, 400, (0,), False)]
    assert may_attend(row, blocks[0], [], None) is None
    short = pack([[*prompt, number] for number in range(2, 60)], "cpu")[0]
    assert blocks_of(short.end.tolist()) == [(0, 200, (), False), (200, 258, (0,), True)]


def test_a_long_completion_is_cut_and_a_long_prompt_is_not():
    prompt = list(range(1500))
    row, _ = pack([[*prompt, *range(2000, 4500)], [*prompt, 5000]], "cpu")
    blocks = blocks_of(row.end.tolist())
    assert [block[:3] for block in blocks] == [
        (0, 1500, ()),
        (1500, 2524, (0,)),
        (2524, 3548, (0, 1)),
        (3548, 4000, (0, 1, 2)),
        (4000, 4001, (0,)),
    ]
    wanted = torch.ones(4001, 4001).tril().bool()
    wanted[4000, 1500:4000] = False
    assert torch.equal(attended(row), wanted)


def test_tokens_behind_a_prefix_see_all_of_it_and_a_window_counts_its_positions():
    row, _ = pack([[10, 11, 12, 20, 21], [10, 11, 12, 22, 23]], "cpu")
    rest = row.behind(3)
    (block,) = blocks_of(rest.end.tolist())
    assert matrix(may_attend(rest, block, [], None, prefix=3)) == [
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0, 1, 0],
        [1, 1, 1, 0, 0, 1, 1],
    ]
    assert matrix(may_attend(rest, block, [], 3, prefix=3)) == [
        [0, 1, 1, 1, 0, 0, 0],
        [0, 0, 1, 1, 1, 0, 0],
        [0, 1, 1, 0, 0, 1, 0],
        [0, 0, 1, 0, 0, 1, 1],
    ]
