"""Task 1: the table of logits, and the given task around it."""

import torch


def test_given_task_is_the_sum_of_two_numbers_up_to_three(impl):
    assert impl.PROMPTS == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (3, 3)]
    assert (impl.N_PROMPTS, impl.N_ANSWERS) == (9, 10)
    assert [impl.verifier((2, 3), answer) for answer in (4, 5, 6)] == [0.0, 1.0, 0.0]


def test_policy_is_an_embedding_with_one_row_per_prompt(impl):
    policy = impl.GRPOPolicy()
    assert isinstance(getattr(policy, "embed", None), torch.nn.Embedding), (
        "self.embed is not an nn.Embedding: __init__ has to create one"
    )
    assert tuple(policy.embed.weight.shape) == (9, 10), (
        "self.embed has the wrong size: rows are prompts, columns are answers"
    )
    assert tuple(impl.GRPOPolicy(3, 4).embed.weight.shape) == (3, 4), (
        "self.embed ignores the arguments n_prompts and n_answers"
    )


def test_policy_returns_the_row_of_logits_unchanged(impl):
    policy = impl.GRPOPolicy(n_prompts=3, n_answers=4)
    logits = policy(1)
    assert tuple(logits.shape) == (4,), (
        "forward returns the wrong shape: look up one index, without a batch dimension"
    )
    assert torch.equal(logits, policy.embed.weight[1]), (
        "forward does not return row prompt_idx as it is: logits, without a softmax"
    )
    assert logits.requires_grad, "forward returns logits without gradient: nothing could be learned"
