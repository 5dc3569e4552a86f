"""Which completions and groups take part in a step."""

from dataclasses import replace

import pytest
import torch
from builders import (
    STOP,
    Rows,
    assert_same_batch,
    batch_of,
    cut,
    make_algorithm,
    make_group,
    make_table,
)
from steps import DEAD, LIVE, STEP

from verigrad.batch import make_batch
from verigrad.training.step import accumulate
from verigrad.types import Group, Rollout, Verdict

GRPO = make_algorithm("grpo")
DR_GRPO = make_algorithm("dr_grpo", aggregation="token_mean")


@pytest.mark.parametrize("reward", [1.0, 0.0])
def test_a_failed_verdict_leaves_the_batch_of_a_step_without_that_rollout(reward: float) -> None:
    kept = [((1, 2, 0), reward), ((3, 0), 1 - reward), ((2, 2, 2, 2), 0.5)]
    other = make_group(1, [((1, 0), 0.0), ((2, 0), 1.0)])
    expected = batch_of([make_group(0, kept), other], GRPO)
    for place in range(4):
        rollouts = [*kept[:place], ((4, 4, 4, 4, 4, 4), None), *kept[place:]]
        assert_same_batch(batch_of([make_group(0, rollouts), other], GRPO), expected)


def test_a_group_whose_verdicts_all_failed_leaves_no_trace() -> None:
    broken = make_group(0, [((1, 0), None), ((2, 0), None)])
    other = make_group(1, [((1, 0), 0.0), ((2, 0), 1.0)])
    assert_same_batch(batch_of([broken, other], GRPO), batch_of([other], GRPO))


def test_no_batch_is_left_when_every_verdict_failed() -> None:
    assert make_batch([make_group(0, [((1, 0), None)]), make_group(1, [])], GRPO) is None


def test_a_group_with_one_scored_rollout_trains_nothing() -> None:
    batch = batch_of([make_group(0, [((1, 0), 1.0), ((2, 0), None), ((3, 0), None)])], GRPO)
    assert batch.advantages.tolist() == [[0.0, 0.0]]
    assert list(cut(batch, 100)) == []


def test_an_unparsable_completion_counts_as_reward_zero() -> None:
    (right, wrong) = make_group(0, [((1, 0), 1.0), ((2, 0), 0.0)]).rollouts
    unparsable = Rollout(
        prompt=wrong.prompt, completion=wrong.completion, verdict=Verdict.unparsable("no number")
    )
    group = make_group(0, [])
    assert_same_batch(
        batch_of([replace(group, rollouts=(right, unparsable))], GRPO),
        batch_of([replace(group, rollouts=(right, wrong))], GRPO),
    )


def test_groups_without_signal_stay_in_the_denominator_unless_the_algorithm_says_no() -> None:
    groups = [
        make_group(0, [((1, 0), 1.0), ((2, 0), 0.0)]),
        make_group(1, [((1, 0), 1.0), ((2, 0), 1.0)]),
    ]
    assert batch_of(groups, DR_GRPO).weights[0, 0] == 1 / 8
    left_out = replace(DR_GRPO, counts_no_signal=False)
    assert_same_batch(batch_of(groups, left_out), batch_of(groups[:1], DR_GRPO))


SHRUNK: Rows = [((1, 0), 1.0), ((2, 0), 0.0), ((3, 0), None), ((4, 0), None)]
WHOLE: Rows = [((1, 0), 1.0), ((2, 0), 0.0), ((3, 0), 0.0), ((4, 0), 0.0)]


@pytest.mark.parametrize("advantage", ["pkpo", "passk_loo", "passk_analytic"])
def test_a_group_that_failures_left_too_small_for_its_k_counts_as_one_without_signal(
    advantage: str,
) -> None:
    algorithm = make_algorithm("pkpo", advantage=advantage, pass_k=3, aggregation="token_mean")
    batch = batch_of([make_group(0, SHRUNK), make_group(1, WHOLE)], algorithm)
    alone = batch_of([make_group(1, WHOLE)], algorithm)
    assert batch.advantages[:2].tolist() == [[0, 0], [0, 0]]
    assert torch.equal(batch.advantages[2:], alone.advantages)
    assert batch.advantages[2:].any()
    assert batch.weights[2:].tolist() == [[1 / 12] * 2] * 4, "it stays in the denominator"
    left_out = replace(algorithm, counts_no_signal=False)
    kept = batch_of([make_group(0, SHRUNK), make_group(1, WHOLE)], left_out)
    assert [prompt.problem_id for prompt in kept.prompts] == ["p1"]
    assert kept.weights.tolist() == alone.weights.tolist()


def test_a_step_of_groups_too_small_for_their_k_trains_nothing() -> None:
    algorithm = make_algorithm("passk", pass_k=3)
    batch = batch_of([make_group(0, SHRUNK)], algorithm)
    assert not batch.row_trains().any()


@pytest.mark.parametrize("advantage", ["pkpo", "passk_loo"])
def test_one_scored_completion_alone_has_no_signal_for_the_best_of_one_either(
    advantage: str,
) -> None:
    algorithm = make_algorithm("pkpo", advantage=advantage, pass_k=1)
    alone = batch_of([make_group(0, [((1, 0), 1.0), ((2, 0), None)])], algorithm)
    assert not alone.advantages.any()
    two = batch_of([make_group(0, [((1, 0), 1.0), ((2, 0), 0.0)])], algorithm)
    assert two.advantages.tolist() == [[1, 1], [0, 0]]


def test_a_group_whose_young_completions_are_alike_has_no_signal_left() -> None:
    group = aged(make_group(0, [((1, 0), 1.0), ((2, 0), 1.0), ((3, 0), 0.0)]), [5, 5, 1])
    algorithm = make_algorithm("dapo", max_staleness=2)
    assert make_batch([group], algorithm, policy_version=5) is None
    assert make_batch([group], algorithm, policy_version=3) is not None


def test_an_algorithm_of_ones_own_says_how_many_completions_its_groups_need() -> None:
    pairs = replace(
        GRPO, smallest_group=2, advantages=lambda scores: torch.ones_like(scores.rewards)
    )
    groups = [make_group(0, [((1, 0), 1.0), ((2, 0), None)]), make_group(1, WHOLE)]
    assert batch_of(groups, pairs).advantages[:, 0].tolist() == [0, 1, 1, 1, 1]


def test_the_same_prompt_drawn_twice_makes_two_groups() -> None:
    right = make_group(0, [((1, STOP), 1.0), ((2, STOP), 1.0)])
    wrong = make_group(0, [((1, STOP), 0.0), ((2, STOP), 0.0)])
    batch = make_batch([right, wrong], make_algorithm("grpo"))
    assert batch is not None
    assert batch.group_index.tolist() == [0, 0, 1, 1]
    assert not batch.advantages.any()


def test_a_punishment_for_length_brings_no_group_without_signal_back() -> None:
    algorithm = make_algorithm("dapo", overlong_share=0.5)
    assert algorithm.punish_length is not None
    assert make_batch([DEAD], algorithm) is None
    batch = make_batch([LIVE, DEAD], algorithm)
    assert batch is not None
    assert [prompt.problem_id for prompt in batch.prompts] == ["p0"]


# Cut off, or too old


def test_truncated_completions_may_leave_the_loss_but_not_the_baseline() -> None:
    rows = STEP[0]
    algorithm = make_algorithm("dr_grpo", aggregation="token_mean", mask_truncated=True)
    masked = batch_of([make_group(0, rows)], algorithm)
    without = batch_of([make_group(0, rows[1:])], algorithm)
    assert masked.weights[0].tolist() == [0] * 4
    assert torch.equal(masked.weights[1:, :3], without.weights)
    plain = batch_of([make_group(0, rows)], replace(algorithm, mask_truncated=False))
    assert torch.equal(masked.advantages[1:], plain.advantages[1:])
    assert masked.advantages[1, 0].item() == pytest.approx(0.25 - 1.75 / 4)
    assert masked.advantages[1, 0] != without.advantages[1, 0]


def test_a_truncated_completion_that_is_masked_leaves_the_denominator() -> None:
    algorithm = make_algorithm("grpo", aggregation="token_mean", mask_truncated=True)
    rows = [((1, 2, STOP), 1.0), ((3, STOP), 0.0), ((1, 2, 3, 4), 0.0)]
    batch = make_batch([make_group(0, rows)], algorithm, dtype=torch.float64)
    assert batch is not None
    assert batch.weights[:, 0].tolist() == pytest.approx([1 / 5, 1 / 5, 0])


def test_a_short_truncated_completion_trains_its_own_tokens_only() -> None:
    group = make_group(0, [((1, 2), 0.0), ((1, 2, 3, STOP), 1.0)])
    batch = make_batch([group], make_algorithm("grpo"))
    assert batch is not None
    assert batch.mask.int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


def test_a_step_of_truncated_completions_only_trains_nothing() -> None:
    algorithm = make_algorithm(mask_truncated=True)
    batch = batch_of([make_group(0, [((1, 2), 1.0), ((3,), 0.0)])], algorithm)
    done = accumulate(make_table(), batch, algorithm, temperature=0.7, token_budget=9)
    assert done is None


def aged(group: Group, versions: list[int]) -> Group:
    rollouts = [
        replace(one, completion=replace(one.completion, policy_version=version))
        for one, version in zip(group.rollouts, versions, strict=True)
    ]
    return replace(group, rollouts=tuple(rollouts))


def test_rollouts_that_are_too_old_are_left_out_as_if_never_drawn() -> None:
    groups = [aged(make_group(0, STEP[0]), [5, 3, 2, 4]), aged(make_group(1, STEP[1]), [1, 2])]
    algorithm = make_algorithm("dr_grpo", max_staleness=2)
    batch = make_batch(groups, algorithm, policy_version=5, dtype=torch.float64)
    young = make_group(0, [STEP[0][0], STEP[0][1], STEP[0][3]])
    expected = batch_of([young], algorithm)
    assert batch is not None
    assert torch.equal(batch.token_ids, expected.token_ids)
    assert torch.equal(batch.advantages, expected.advantages)
    assert torch.equal(batch.weights, expected.weights)
    assert make_batch(groups, algorithm, policy_version=8) is None
    everything = make_batch(groups, make_algorithm("dr_grpo"), policy_version=99)
    assert everything is not None
    assert len(everything.lengths) == 6


def test_a_rollout_that_is_too_old_is_left_out_before_any_mean() -> None:
    algorithm = make_algorithm("dr_grpo", max_staleness=1)
    group = make_group(0, [((1, STOP), 1.0), ((2, STOP), 0.0), ((3, STOP), 0.0)])
    versions = (4, 3, 2)
    rollouts = tuple(
        replace(rollout, completion=replace(rollout.completion, policy_version=version))
        for rollout, version in zip(group.rollouts, versions, strict=True)
    )
    batch = make_batch([replace(group, rollouts=rollouts)], algorithm, policy_version=4)
    assert batch is not None
    assert batch.token_ids[:, 0].tolist() == [1, 2]
    assert batch.advantages[:, 0].tolist() == [0.5, -0.5]
