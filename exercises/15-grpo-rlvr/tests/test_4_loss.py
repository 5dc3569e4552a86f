"""Task 4: the clipped loss."""

import math

import pytest
import torch


def loss_of(impl, ratios, advantages, **options):
    """The loss with new probabilities `ratios` times the old ones, and the new log-probs."""
    old = torch.full((len(ratios),), math.log(0.25), dtype=torch.float64)
    new = (old + torch.tensor(ratios, dtype=torch.float64).log()).requires_grad_()
    loss = impl.grpo_loss(new, old, torch.tensor(advantages, dtype=torch.float64), **options)
    return loss, new


def test_loss_is_minus_the_mean_advantage_while_the_policy_has_not_moved(impl):
    loss, _ = loss_of(impl, [1.0, 1.0, 1.0], [1.0, 2.0, 6.0])
    assert tuple(loss.shape) == (), "the loss is not a scalar: average over the group"
    assert loss.item() < 0, (
        "the minus sign is missing: the optimiser minimises, so a good answer must lower the loss"
    )
    assert loss.item() == pytest.approx(-3.0), (
        "wrong size: the loss is the mean over the group (not the sum, nor one member)"
    )


def test_loss_pushes_each_answer_in_the_direction_of_its_advantage(impl):
    loss, new = loss_of(impl, [1.0, 1.0], [1.0, -1.0])
    assert loss.requires_grad, "the loss has no gradient: only the old log-probs are constants"
    loss.backward()
    assert new.grad.tolist() == pytest.approx([-0.5, 0.5]), (
        "wrong gradient: with the ratio at 1 it is -A / K for each new log-probability"
    )


def test_loss_takes_the_ratio_of_new_to_old(impl):
    loss, _ = loss_of(impl, [1.1], [1.0])
    assert loss.item() == pytest.approx(-1.1), (
        "the ratio is wrong: it is exp(log_probs_new - log_probs_old), new over old"
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.5, 1.0, -1.2), (0.5, -1.0, 0.8)],
    ids=["too likely and good", "too unlikely and bad"],
)
def test_loss_stops_rewarding_a_move_beyond_the_clip(impl, ratio, advantage, expected):
    loss, new = loss_of(impl, [ratio], [advantage])
    assert loss.item() == pytest.approx(expected), (
        "the clip is missing or one-sided: clamp the ratio to [1 - clip_eps, 1 + clip_eps]"
    )
    loss.backward()
    assert new.grad.tolist() == [0.0], "beyond the clip nothing should pull any more: no gradient"


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [(1.5, -1.0, 1.5), (0.5, 1.0, -0.5)],
    ids=["too likely and bad", "too unlikely and good"],
)
def test_loss_does_not_clip_a_move_in_the_wrong_direction(impl, ratio, advantage, expected):
    loss, _ = loss_of(impl, [ratio], [advantage])
    assert loss.item() == pytest.approx(expected), (
        "take the smaller of ratio * A and clipped * A: the clipped product alone, or the larger, "
        "forgives a move in the wrong direction"
    )


def test_loss_takes_the_smaller_product_for_each_answer_before_the_mean(impl):
    loss, _ = loss_of(impl, [1.5, 0.5], [1.0, 1.0])
    assert loss.item() == pytest.approx(-(1.2 + 0.5) / 2), (
        "min comes before mean: choose the smaller product per answer, then average"
    )


def test_loss_clips_as_far_as_clip_eps_says(impl):
    loss, _ = loss_of(impl, [2.0], [1.0], clip_eps=0.5)
    assert loss.item() == pytest.approx(-1.5), "clip_eps is ignored: clamp with the argument"
