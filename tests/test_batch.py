"""Groups to tensors, and tensors cut into passes."""

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
import torch
from builders import batch_of, cut, make_algorithm, make_completion, make_group
from golden import cases
from hypothesis import given
from hypothesis import strategies as st

from verigrad.batch import Batch, LossOutput, make_batch, select_rows
from verigrad.errors import BadNumbersError
from verigrad.types import Finish, Group, Prompt, Rollout, Verdict

GRPO = make_algorithm("grpo")
DR_GRPO = make_algorithm("dr_grpo", aggregation="token_mean")


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Up to four groups of up to five rows of up to nine tokens, prompts of up to six tokens."""
    groups = []
    for row in range(draw(st.integers(1, 4))):
        lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
        rewards = draw(
            st.lists(st.sampled_from([0.0, 1.0]), min_size=len(lengths), max_size=len(lengths))
        )
        rollouts = [([1] * n, reward) for n, reward in zip(lengths, rewards, strict=True)]
        groups.append(with_prompt(make_group(row, rollouts), draw(st.integers(1, 6))))
    return batch_of(groups, DR_GRPO)


def with_prompt(group: Group, length: int) -> Group:
    prompt = Prompt(problem_id=group.problem.id, token_ids=(7,) * length)
    return replace(group, rollouts=tuple(replace(each, prompt=prompt) for each in group.rollouts))


def test_two_groups_laid_out() -> None:
    groups = [make_group(0, [((5, 6, 0), 1.0), ((7,), 0.0)]), make_group(1, [((4, 4), 0.5)])]
    batch = batch_of(groups, DR_GRPO)
    assert [prompt.problem_id for prompt in batch.prompts] == ["p0", "p1"]
    assert batch.group_index.tolist() == [0, 0, 1]
    assert batch.token_ids.tolist() == [[5, 6, 0], [7, 0, 0], [4, 4, 0]]
    assert batch.lengths.tolist() == [3, 1, 2]
    assert batch.mask.tolist() == [[True] * 3, [True, False, False], [True, True, False]]
    assert batch.sampling_log_probs.tolist() == [[-1, -1, -1], [-1, 0, 0], [-1, -1, 0]]
    assert batch.old_log_probs is None
    assert batch.advantages.tolist() == [[0.5] * 3, [-0.5, 0, 0], [0, 0, 0]]
    assert batch.weights.tolist() == (batch.mask.double() / 6).tolist()
    assert batch.row_trains().tolist() == [True, True, False]


@pytest.mark.parametrize(("inputs", "expected"), cases("mask"))
def test_golden_mask_with_the_stop_token_as_padding(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    rows = [
        tuple(ids[:length])
        for ids, length in zip(inputs["completion_ids"], inputs["generated_lengths"], strict=True)
    ]
    completions = [make_completion(row, stop=inputs["eos_id"]) for row in rows]
    group = make_group(0, [(row, float(index)) for index, row in enumerate(rows)])
    rollouts = tuple(
        replace(one, completion=completion)
        for one, completion in zip(group.rollouts, completions, strict=True)
    )
    group = replace(group, rollouts=rollouts)
    assert batch_of([group], GRPO).mask.int().tolist() == expected["mask"]
    dropping = replace(GRPO, mask_truncated=True)
    without = batch_of([group], dropping).mask.int().tolist()
    assert without == expected["mask_if_truncated_dropped"]
    truncated = [int(completion.finish is Finish.TRUNCATED) for completion in completions]
    assert truncated == expected["truncated"]


@pytest.mark.parametrize(("inputs", "expected"), cases("filter"))
def test_golden_groups_are_kept_for_the_signal_of_their_raw_rewards(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """A punishment for length gives one group a spread that says nothing about the task."""

    def groups_of(rewards: list[float]) -> list[Group]:
        rows: dict[int, list[Any]] = {}
        for place, (group, reward) in enumerate(zip(inputs["group_ids"], rewards, strict=True)):
            tokens = (1, 2, 3, 0) if inputs["shaped_reward"][place] < 0 else (1, 0)
            rows.setdefault(group, []).append((tokens, reward))
        return [make_group(row, some) for row, some in rows.items()]

    groups = groups_of(inputs["metric"])
    assert [int(group.has_signal) for group in groups] == expected["keep_group"]
    shaped = [int(group.has_signal) for group in groups_of(inputs["shaped_reward"])]
    assert shaped == expected["wrong_if_filtered_on_shaped_reward"]
    filtering = make_algorithm("dapo", overlong_share=0.5)
    kept = [prompt.problem_id for prompt in batch_of(groups, filtering).prompts]
    assert kept == [f"p{row}" for row, keep in enumerate(expected["keep_group"]) if keep]


def test_an_empty_completion_has_a_row_without_tokens() -> None:
    batch = batch_of([make_group(0, [((), 0.0), ((1, 0), 1.0)])], GRPO)
    assert batch.lengths.tolist() == [0, 2]
    assert batch.weights.tolist() == [[0, 0], [0.5, 0.5]]
    assert batch.row_trains().tolist() == [False, True]


def test_a_step_of_empty_completions_only_trains_nothing() -> None:
    batch = batch_of([make_group(0, [((), 0.0), ((), 1.0)])], GRPO)
    assert not batch.mask.any()
    assert list(cut(batch, 100)) == []


def test_an_algorithm_may_give_each_token_its_own_advantage() -> None:
    per_token = replace(GRPO, advantages=lambda scores: scores.mask.double().cumsum(dim=1))
    batch = batch_of([make_group(0, [((5, 6, 0), 1.0), ((7,), 0.0)])], per_token)
    assert batch.advantages.tolist() == [[1, 2, 3], [1, 0, 0]]


def test_an_advantage_that_is_not_finite_names_the_problem_and_the_completion() -> None:
    bad = replace(GRPO, advantages=lambda scores: scores.rewards * nan)
    group = make_group(3, [((5, 0), 0.25), ((7,), 0.0)])
    found = r"advantage by 'grpo' of completion '5 0' of problem 'p3' is not finite.* reward 0\.25"
    with pytest.raises(BadNumbersError, match=found):
        make_batch([group], bad)


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_part_of_a_reward_that_is_not_finite_names_the_problem_and_the_completion(
    bad: float,
) -> None:
    group = make_group(3, [((5, 0), 0.25), ((7,), 0.0)])
    verdicts = [
        replace(rollout.verdict, components={"brevity": brevity})
        for rollout, brevity in zip(group.rollouts, (1.0, bad), strict=True)
    ]
    group = replace(
        group,
        rollouts=tuple(
            replace(rollout, verdict=verdict)
            for rollout, verdict in zip(group.rollouts, verdicts, strict=True)
        ),
    )
    found = "a part of the reward of completion '7' of problem 'p3' is not finite"
    with pytest.raises(BadNumbersError, match=found):
        make_batch([group], make_algorithm("gdpo"))


@pytest.mark.parametrize("place", [0, 1])
def test_verdicts_with_different_parts_are_refused_by_problem(place: int) -> None:
    rollouts = list(make_group(3, [((5, 0), 0.25), ((7,), 0.0)]).rollouts)
    odd = replace(rollouts[place].verdict, components={"brevity": 1.0})
    rollouts[place] = replace(rollouts[place], verdict=odd)
    group = replace(make_group(3, []), rollouts=tuple(rollouts))
    with pytest.raises(BadNumbersError, match=r"problem 'p3' has the parts .*'brevity'"):
        make_batch([group], make_algorithm("gdpo"))


@pytest.mark.parametrize("name", ["grpo", "rloo", "maxrl", "passk"])
def test_advantages_of_the_whole_reward_take_verdicts_of_any_parts(name: str) -> None:
    """Two tasks of a mixture, or a part that does not apply to every completion."""
    group = make_group(3, [((5, 0), 1.0), ((7,), 0.0), ((7, 0), 1.0), ((6, 0), 0.0), ((4,), 0.0)])
    parts = ({"right": 1.0}, {}, {"right": 1.0, "short": 0.5}, {"odd": nan}, {"right": 0.0})
    mixed = replace(group, rollouts=tuple(map(with_parts, group.rollouts, parts)))
    algorithm = make_algorithm(name)
    assert torch.equal(
        batch_of([mixed], algorithm).advantages, batch_of([group], algorithm).advantages
    )


def with_parts(
    rollout: Rollout, parts: dict[str, float], weights: dict[str, float] | None = None
) -> Rollout:
    verdict = replace(rollout.verdict, components=parts, weights=weights or {})
    return replace(rollout, verdict=verdict)


def test_the_parts_of_each_reward_have_their_own_weights() -> None:
    """Two tasks of a mixture name a part alike and weigh it differently."""

    def step(*weights: float) -> list[Group]:
        rows = [((5, 0), 1.0, 0.0), ((7,), 0.0, 0.5), ((6, 0), 1.0, 1.0)]
        groups = []
        for place, weight in enumerate(weights):
            plain = make_group(place, [(ids, right + weight * low) for ids, right, low in rows])
            rollouts = [
                with_parts(rollout, {"right": right, "low": low}, {"low": weight})
                for rollout, (_, right, low) in zip(plain.rollouts, rows, strict=True)
            ]
            unparsable = replace(rollouts[0], verdict=Verdict.unparsable("no number"))
            groups.append(replace(plain, rollouts=(*rollouts, unparsable)))
        return groups

    by_part = make_algorithm(advantage="sum_then_grpo")
    found = batch_of(step(0.25, -3.0), by_part).advantages
    assert torch.equal(found, batch_of(step(0.25, -3.0), make_algorithm("grpo")).advantages)
    gdpo = make_algorithm("gdpo", advantage_eps=0.0)
    both, other = (batch_of(step(*pair), gdpo).advantages for pair in ((0.25, -3.0), (-3.0, 0.25)))
    torch.testing.assert_close(both, other.roll(4, dims=0))
    assert not torch.allclose(both, other)


@pytest.mark.parametrize("place", [0, 1])
def test_an_unparsable_completion_has_nothing_of_any_part(place: int) -> None:
    rows = make_group(3, [((5, 0), 1.5), ((7, 0), 0.0), ((6, 0), 0.0)]).rollouts

    def parted(rollout: Rollout, right: float, brevity: float) -> Rollout:
        parts = {"right": right, "brevity": brevity}
        return replace(rollout, verdict=replace(rollout.verdict, components=parts))

    def values(*rollouts: Rollout) -> Any:
        group = replace(make_group(3, []), rollouts=rollouts)
        return batch_of([group], make_algorithm("gdpo")).advantages.tolist()

    others = [parted(rows[0], 1.0, 0.5), parted(rows[1], 0.0, 0.25)]
    unparsable = replace(rows[2], verdict=Verdict.unparsable("no number"))
    found = values(*others[:place], unparsable, *others[place:])
    assert found == values(*others[:place], parted(rows[2], 0.0, 0.0), *others[place:])


def test_negative_rewards_for_maxrl_name_the_algorithm_and_the_reason() -> None:
    group = make_group(3, [((5, 0), 0.25), ((7,), -1.0)])
    with pytest.raises(BadNumbersError, match=r"maxrl: .*row 1 has reward -1\.0"):
        make_batch([group], make_algorithm("maxrl"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_float_tensors_have_the_asked_dtype(dtype: torch.dtype) -> None:
    batch = batch_of([make_group(0, [((5, 0), 1.0), ((7,), 0.0)])], GRPO, dtype=dtype)
    found = {batch.sampling_log_probs.dtype, batch.advantages.dtype, batch.weights.dtype}
    assert found == {dtype}


@given(batches(), st.integers(1, 60))
def test_every_row_that_trains_is_in_one_pass_and_no_other_row_is(
    batch: Batch, budget: int
) -> None:
    numbered = replace(batch, sampling_log_probs=batch.mask * row_numbers(batch))
    passes = list(cut(numbered, budget))
    seen = [int(row[0]) - 1 for part in passes for row in part.sampling_log_probs]
    assert sorted(seen) == batch.row_trains().nonzero().flatten().tolist()


def row_numbers(batch: Batch) -> torch.Tensor:
    """The number of each row, from 1, ``[B, 1]``: a mark by which a row is known in its pass."""
    return torch.arange(1, len(batch.lengths) + 1, dtype=torch.float64).unsqueeze(1)


@given(batches(), st.integers(1, 60))
def test_a_pass_keeps_to_the_budget_unless_it_is_a_single_row(batch: Batch, budget: int) -> None:
    for part in cut(batch, budget):
        cost = sum(len(prompt.token_ids) for prompt in part.prompts) + len(
            {
                (group, *ids[:end])
                for group, ids, length in zip(
                    part.group_index.tolist(),
                    part.token_ids.tolist(),
                    part.lengths.tolist(),
                    strict=True,
                )
                for end in range(1, length + 1)
            }
        )
        assert cost <= budget or len(part.lengths) == 1


@given(batches(), st.integers(1, 60))
def test_a_group_that_fits_the_budget_is_never_cut(batch: Batch, budget: int) -> None:
    passes = list(cut(batch, budget))
    trains = batch.row_trains()
    for group, prompt in enumerate(batch.prompts):
        rows = trains & (batch.group_index == group)
        if len(prompt.token_ids) + int(batch.lengths[rows].sum()) <= budget:
            assert sum(prompt in part.prompts for part in passes) <= 1


def test_a_group_larger_than_the_budget_is_cut_between_rows() -> None:
    rollouts = [((index,) * length, float(index)) for index, length in enumerate([3, 9, 1, 1])]
    batch = batch_of([make_group(0, rollouts)], make_algorithm("dr_grpo"))
    passes = list(cut(batch, 5))
    assert [part.lengths.tolist() for part in passes] == [[3], [9], [1, 1]]
    assert [len(part.prompts) for part in passes] == [1, 1, 1]
    assert [part.token_ids.shape[1] for part in passes] == [3, 9, 1]


def test_what_completions_begin_with_together_counts_once_in_a_pass() -> None:
    """A prompt of one token: (1, 1) adds two, (1, 1, 2) one, (1, 3, 3) two; a budget holds six."""
    rollouts = [((1, 3, 3), 1.0), ((1, 1), 0.0), ((1, 1, 2), 0.0)]
    batch = batch_of([make_group(0, rollouts)], make_algorithm("dr_grpo"))
    assert [part.lengths.tolist() for part in cut(batch, 6)] == [[3, 2, 3]]
    assert [part.lengths.tolist() for part in cut(batch, 5)] == [[2, 3], [3]]


def test_selected_rows_keep_what_was_computed_for_the_whole_batch() -> None:
    groups = [
        make_group(0, [((1, 2, 3, 4), 1.0), ((2, 0), 0.0)]),
        make_group(1, [((3, 0), 1.0), ((2,), 0.0)]),
        make_group(2, [((3, 0), 0.0), ((4, 0), 1.0)]),
    ]
    batch = batch_of(groups, DR_GRPO)
    old = torch.arange(24, dtype=torch.float64).reshape(6, 4)
    part = select_rows(replace(batch, old_log_probs=old), [5, 1])
    assert [prompt.problem_id for prompt in part.prompts] == ["p0", "p2"]
    assert part.group_index.tolist() == [1, 0]
    assert part.token_ids.tolist() == [[4, 0], [2, 0]]
    assert part.weights.tolist() == [[1 / 13] * 2] * 2
    assert part.advantages.tolist() == [[0.5] * 2, [-0.5] * 2]
    assert part.old_log_probs is not None
    assert part.old_log_probs.tolist() == [[20, 21], [4, 5]]


def test_loss_outputs_of_passes_add_up() -> None:
    def output(loss: float, tokens: int, largest: float) -> LossOutput:
        return LossOutput(
            loss=torch.tensor(loss),
            tokens=tokens,
            clipped=1,
            entropy=0.5,
            kl=0.25,
            mismatch=largest,
            largest_mismatch=largest,
        )

    total = output(1.0, 3, 0.25) + output(-3.0, 4, 0.125)
    assert total == LossOutput(
        loss=torch.tensor(-2.0),
        tokens=7,
        clipped=2,
        entropy=1.0,
        kl=0.5,
        mismatch=0.375,
        largest_mismatch=0.25,
    )
