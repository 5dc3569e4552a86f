"""GRPO on sums that a program can check: the worked solution.

Try starter.py first. Every function here is the shortest correct version that we know, so that it
can be compared with yours line by line. Run as a script, it trains once and prints how that went.
"""

import torch
import torch.nn as nn

# The order is fixed: a prompt is known to the policy by its position in this list.
PROMPTS = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)]
N_PROMPTS = len(PROMPTS)
N_ANSWERS = 10


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
        self.embed = nn.Embedding(n_prompts, n_answers)

    def forward(self, prompt_idx: int) -> torch.Tensor:
        """Returns the logits of one prompt, shape (n_answers,)."""
        return self.embed(torch.tensor(prompt_idx, dtype=torch.long))


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
    distribution = torch.distributions.Categorical(logits=policy(prompt_idx))
    answers = distribution.sample((K,))
    return answers, distribution.log_prob(answers)


def group_advantages(rewards: torch.Tensor, eps: float = 1e-8) -> torch.Tensor:
    """Measures each reward against its own group: (r - mean) / (std + eps).

    The standard deviation is the unbiased one (K - 1 in its denominator). Equal rewards, and so any
    group of one, give exact zeros.

    Args:
        rewards: Float tensor of shape (K,), K at least 1.
        eps: Keeps the division finite; a spread below it counts as none.

    Returns:
        Shape (K,), in the dtype of the rewards.
    """
    # Compared one by one: the computed mean of equal floats can miss them by a rounding error, and
    # their computed spread then exceeds eps (seven times 1/3 in float32 does).
    all_equal = bool((rewards == rewards[0]).all())
    if all_equal or rewards.std() < eps:
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / (rewards.std() + eps)


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
    ratio = torch.exp(log_probs_new - log_probs_old)
    clipped = ratio.clamp(1 - clip_eps, 1 + clip_eps)
    surrogate = torch.min(ratio * advantages, clipped * advantages)
    return -surrogate.mean()


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
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)

    step_rewards = []
    for _ in range(num_steps):
        prompt_idx = int(torch.randint(N_PROMPTS, (1,), generator=rng))
        answers, log_probs_old = sample_group(policy, prompt_idx, K)
        log_probs_old = log_probs_old.detach()
        rewards = torch.tensor([verifier(PROMPTS[prompt_idx], a) for a in answers.tolist()])
        advantages = group_advantages(rewards)

        # The same numbers as log_probs_old, since the policy has not moved yet: only these are
        # attached to its graph.
        distribution = torch.distributions.Categorical(logits=policy(prompt_idx))
        log_probs_new = distribution.log_prob(answers)
        loss = grpo_loss(log_probs_new, log_probs_old, advantages, clip_eps)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step_rewards.append(rewards.mean().item())

    return step_rewards


if __name__ == "__main__":
    rewards = train()
    last200 = rewards[-200:]
    print(
        f"steps: {len(rewards)}  "
        f"mean reward (last 200): {sum(last200) / len(last200):.3f}  "
        f"(random guessing ≈ 0.10)"
    )
