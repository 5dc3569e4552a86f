"""Task 2: a group of answers and their log-probabilities."""

import math

import pytest
import torch

CHANCES = [0.5, 0.25, 0.125, 0.125]


def small_policy(impl):
    """Three prompts and four answers; prompt 1 answers with CHANCES."""
    policy = impl.GRPOPolicy(n_prompts=3, n_answers=4)
    with torch.no_grad():
        policy.embed.weight[1] = torch.tensor(CHANCES).log()
    return policy


@pytest.mark.parametrize("size", [1, 8])
def test_sample_has_one_answer_and_one_log_prob_per_member(impl, size):
    answers, log_probs = impl.sample_group(small_policy(impl), 1, size)
    assert tuple(answers.shape) == (size,), "answers has the wrong shape: draw K at once, (K,)"
    assert answers.dtype == torch.long, "answers are indices: keep them int64"
    assert tuple(log_probs.shape) == (size,), "log_probs has the wrong shape: one number per answer"


def test_sample_follows_the_policy(impl):
    torch.manual_seed(0)
    answers, _ = impl.sample_group(small_policy(impl), 1, 4000)
    shares = torch.bincount(answers, minlength=4) / 4000
    assert shares.tolist() == pytest.approx(CHANCES, abs=0.03), (
        "the answers are not drawn with the policy's probabilities for this prompt: neither the "
        "most likely answer nor a uniform choice, and Categorical wants logits=..."
    )


def test_sample_log_probs_belong_to_the_answers(impl):
    answers, log_probs = impl.sample_group(small_policy(impl), 1, 32)
    expected = [math.log(CHANCES[answer]) for answer in answers.tolist()]
    assert log_probs.tolist() == pytest.approx(expected, abs=1e-5), (
        "log_probs are not the natural logarithms of the probabilities of these very answers"
    )


def test_sample_log_probs_carry_the_gradient(impl):
    policy = small_policy(impl)
    _, log_probs = impl.sample_group(policy, 1, 8)
    assert log_probs.requires_grad, (
        "log_probs are detached inside sample_group: leave them attached, the caller decides"
    )
    log_probs[0].backward()
    assert policy.embed.weight.grad.any(dim=1).tolist() == [False, True, False], (
        "the gradient of log_probs does not reach the row of the prompt, and that row alone"
    )
