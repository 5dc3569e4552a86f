"""GRPO on sums that a program can check: your part.

Six places below raise NotImplementedError. Replace each with your code, in the order of the task
numbers, and grade yourself from the root of the repository:

    pip install -r exercises/requirements.txt
    pytest exercises/15-grpo-rlvr/

README.md explains the tasks; HINTS.md helps in three steps per task. Once the tests pass,
`python exercises/15-grpo-rlvr/starter.py` trains a policy and prints how well it answers.
"""

import torch
import torch.nn as nn

# The order is fixed: a prompt is known to the policy by its position in this list.
PROMPTS = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)]
N_PROMPTS = len(PROMPTS)
N_ANSWERS = 10


# This function is finished. It stands where other methods need a learned reward model.
def verifier(prompt: tuple, answer: int) -> float:
    """Checks a sum by computing it.

    Args:
        prompt: The two numbers to add.
        answer: What the policy says they make.

    Returns:
        1.0 for the right sum, 0.0 for any other number.
    """
    return float(answer == sum(prompt))


class GRPOPolicy(nn.Module):
    """A table of logits: one row per prompt, one column per answer.

    Args:
        n_prompts: Rows of the table.
        n_answers: Columns of the table.
    """

    def __init__(self, n_prompts: int = N_PROMPTS, n_answers: int = N_ANSWERS):
        super().__init__()
        # Task 1: keep the table as an nn.Embedding in self.embed.
        raise NotImplementedError("GRPOPolicy.__init__")

    def forward(self, prompt_idx: int) -> torch.Tensor:
        """Returns the logits of one prompt, shape (n_answers,)."""
        # Task 1: look up the row. An embedding takes a tensor of integers, not an int.
        raise NotImplementedError("GRPOPolicy.forward")


def sample_group(
    policy: GRPOPolicy,
    prompt_idx: int,
    K: int,
) -> tuple:
    """Draws a group of answers to one prompt.

    Args:
        policy: Whose answers to draw.
        prompt_idx: Position of the prompt in PROMPTS.
        K: Size of the group, at least 1.

    Returns:
        The answers, int64 of shape (K,), and the log-probability of each under the policy, shape
        (K,), still attached to the policy's graph.
    """
    # Task 2: torch.distributions.Categorical can both draw and score.
    raise NotImplementedError("sample_group")


def group_advantages(rewards: torch.Tensor, eps: float = 1e-8) -> torch.Tensor:
    """Measures each reward against its own group: (r - mean) / (std + eps).

    The standard deviation is the unbiased one (K - 1 in its denominator, as torch has it). A group
    of one has nothing to be measured against, and equal rewards tell no answer from another: both
    give zeros.

    Args:
        rewards: Float tensor of shape (K,), K at least 1.
        eps: Keeps the division finite; a spread below it counts as none.

    Returns:
        Shape (K,), in the dtype of the rewards.
    """
    # Task 3: the cases that give zeros first, then the formula.
    raise NotImplementedError("group_advantages")


def grpo_loss(
    log_probs_new: torch.Tensor,
    log_probs_old: torch.Tensor,
    advantages: torch.Tensor,
    clip_eps: float = 0.2,
) -> torch.Tensor:
    """The clipped policy-gradient loss of one group, to be minimised.

    Per answer, with ratio = exp(new - old), it is the smaller of ratio * A and
    clip(ratio, 1 - clip_eps, 1 + clip_eps) * A; the loss is minus the mean of these over the group.

    Args:
        log_probs_new: Shape (K,), under the policy being trained; carries the gradient.
        log_probs_old: Shape (K,), under the policy that drew the answers; a constant.
        advantages: Shape (K,), from group_advantages.
        clip_eps: How far from 1 the ratio still counts.

    Returns:
        A scalar with gradient.
    """
    # Task 4: ratio, clipped ratio, the smaller product per answer, minus the mean.
    raise NotImplementedError("grpo_loss")


def train(
    num_steps: int = 1500,
    K: int = 8,
    lr: float = 0.5,
    clip_eps: float = 0.2,
    seed: int = 0,
) -> list:
    """Trains a fresh policy, one prompt and one update per step.

    Args:
        num_steps: How many updates to make.
        K: Answers per group.
        lr: Learning rate of Adam.
        clip_eps: Passed on to grpo_loss.
        seed: Fixes the first policy, the prompts and the answers.

    Returns:
        The mean reward of each step's group, num_steps floats between 0 and 1.
    """
    torch.manual_seed(seed)
    rng = torch.Generator()
    rng.manual_seed(seed)

    policy = GRPOPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)  # noqa: F841 - used by your code

    step_rewards = []
    for _ in range(num_steps):
        # Task 5, in this order:
        # - draw a position in PROMPTS uniformly, with rng;
        # - draw a group, and detach its log-probabilities: they are the old ones;
        # - reward each answer with the verifier, and turn the rewards into advantages;
        # - score the same answers again with the policy: the new log-probabilities;
        # - compute the loss, clear the gradients, propagate back, let the optimizer step;
        # - append the mean reward of the group, as a float, to step_rewards.
        raise NotImplementedError("train: the update step")

    return step_rewards


if __name__ == "__main__":
    rewards = train()
    last200 = rewards[-200:]
    print(
        f"steps: {len(rewards)}  "
        f"mean reward (last 200): {sum(last200) / len(last200):.3f}  "
        f"(random guessing ≈ 0.10)"
    )
