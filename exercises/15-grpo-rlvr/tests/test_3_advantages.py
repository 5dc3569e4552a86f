"""Task 3: each reward against its group."""

import pytest
import torch


def test_advantages_measure_a_reward_against_its_group(impl):
    # Mean 1/4 and unbiased standard deviation 1/2.
    advantages = impl.group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    assert advantages.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5), (
        "wrong advantages: subtract the mean of the group, then divide by its unbiased standard "
        "deviation (K - 1 in the denominator, the default of tensor.std)"
    )


def test_advantages_add_eps_to_the_spread(impl):
    advantages = impl.group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0]), eps=0.25)
    assert advantages.tolist() == pytest.approx([1.0, -1 / 3, -1 / 3, -1 / 3], abs=1e-5), (
        "eps is not where it belongs: it is added to the standard deviation, before dividing"
    )


def test_advantages_of_a_group_of_one_are_zero(impl):
    advantages = impl.group_advantages(torch.tensor([1.0]))
    assert advantages.tolist() == [0.0], (
        "K == 1 needs its own case: one reward has no spread (its std is nan), so return zeros"
    )


@pytest.mark.parametrize(
    ("rewards", "eps"),
    [
        (torch.full((4,), 0.0), 1e-8),
        (torch.full((4,), 1.0), 1e-8),
        (torch.full((4,), 0.5), 1e-8),
        # Here the computed mean is not quite the reward, and only a case of its own gives zeros.
        (torch.full((6,), 0.7, dtype=torch.float64), 1e-8),
        (torch.full((7,), 1 / 3), 1e-3),
    ],
)
def test_advantages_of_equal_rewards_are_zero(impl, rewards, eps):
    advantages = impl.group_advantages(rewards, eps)
    assert advantages.tolist() == [0.0] * len(rewards), (
        "equal rewards need their own case: without a spread return zeros, before any division; "
        "otherwise a rounding error of the mean is divided by almost nothing"
    )


def test_advantages_keep_the_dtype(impl):
    for rewards in (torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])):
        for dtype in (torch.float32, torch.float64):
            assert impl.group_advantages(rewards.to(dtype)).dtype == dtype, (
                "the advantages have another dtype than the rewards: see torch.zeros_like"
            )
