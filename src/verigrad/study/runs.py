"""Many independent runs of the toy task at once: one tensor with an axis of seeds.

Each run is what ``examples/toy.toml`` is: nine addition problems, ten answers, one problem and K
answers a step, one update, Adam. A run's random numbers come from its seed and the step, and
nothing is reduced across runs, so seed 7 among a hundred is seed 7 alone, bit for bit.

Simplifications: problems are drawn uniformly rather than by epochs; an algorithm that makes several
updates per batch makes one here; a completion is one token, so that rules which differ by length do
not differ here.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from verigrad.algorithms import Algorithm, Scores
from verigrad.core.sampling import as_int64, draw_tokens, uniform
from verigrad.hashing import stable_hash

ANSWERS = 10

STEP_WIDE = ("batch_std", "reinforce_pp", "reinforce_pp_baseline", "gdpo")
"""Advantages with statistics over a whole step: they are computed run by run, which is slower."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One line of a study: what all its runs have in common."""

    algorithm: str
    """The preset."""

    completions: int
    """K."""

    learning_rate: float
    """Of Adam."""

    difficulty: float = 0.0
    """Added to every wrong answer's logit at the start: 0 is N(0, 1) for all, 3 is hard."""


def correct_answers() -> Tensor:
    """``[P]``: the right answer of each of the nine problems."""
    return torch.tensor([a + b for a in range(1, 4) for b in range(1, 4)])


def run_many(
    setting: Setting, algorithm: Algorithm, *, seeds: list[int], steps: int, step_wide: bool
) -> Tensor:
    """Train one table per seed.

    Args:
        setting: K, learning rate and difficulty.
        algorithm: its advantages and its loss are used, with one update per batch.
        seeds: one run each, ``S`` of them.
        steps: how many.
        step_wide: whether the advantages have statistics over the whole step.

    Returns:
        Mean reward of each step, ``[S, steps]``.
    """
    right = correct_answers()
    keys = torch.tensor([as_int64(stable_hash("study", seed)) for seed in seeds])
    slots = torch.tensor(
        [
            [as_int64(stable_hash("study", seed, k)) for k in range(setting.completions)]
            for seed in seeds
        ]
    )
    table = _initial(seeds, right, setting.difficulty)
    adam = _Adam(table, setting.learning_rate)
    rewards_seen = []
    runs = torch.arange(len(seeds))
    for step in range(steps):
        problem = (uniform(keys, step) * len(right)).long()
        logits = table[runs, problem]
        answers = _draw(logits, slots, step)
        rewards = (answers == right[problem].unsqueeze(1)).double()
        gradient = _gradient(logits, answers, rewards, algorithm, step_wide)
        adam.step(problem, gradient)
        rewards_seen.append(rewards.mean(dim=1))
    return torch.stack(rewards_seen, dim=1)


def _initial(seeds: list[int], right: Tensor, difficulty: float) -> Tensor:
    """``[S, P, V]`` logits, each run's from its own generator."""
    shape = (len(right), ANSWERS)
    tables = [
        torch.randn(shape, generator=torch.Generator().manual_seed(stable_hash("table", seed) >> 1))
        for seed in seeds
    ]
    wrong = torch.arange(ANSWERS) != right.unsqueeze(1)
    return torch.stack(tables).double() + difficulty * wrong.double()


def _draw(logits: Tensor, slots: Tensor, step: int) -> Tensor:
    """``[S, K]`` answers."""
    runs, completions = slots.shape
    states = torch.arange(runs).repeat_interleave(completions)
    return draw_tokens(logits, states, uniform(slots.flatten(), step)).view(runs, completions)


def _gradient(
    logits: Tensor, answers: Tensor, rewards: Tensor, algorithm: Algorithm, step_wide: bool
) -> Tensor:
    """``[S, V]``: gradient of each run's loss with respect to its problem's logits."""
    runs, completions = answers.shape
    mask = torch.ones(runs * completions, 1, dtype=torch.bool)
    group = torch.arange(runs).repeat_interleave(completions)
    advantages = _advantages(rewards, group, mask, algorithm, step_wide)
    probabilities = logits.softmax(dim=-1)
    chosen = probabilities.log().gather(1, answers).view(-1, 1).requires_grad_()
    per_token = algorithm.loss(chosen, chosen.detach(), advantages, mask)
    (by_log_prob,) = torch.autograd.grad(per_token.sum(), chosen)
    weights = algorithm.aggregation(mask[:completions], group[:completions])
    by_log_prob = by_log_prob.view(runs, completions) * weights.view(1, completions)
    # d log pi(a) / d logits = onehot(a) - pi, summed over the answers one after another.
    total = -by_log_prob.cumsum(dim=1)[:, -1:] * probabilities
    for k in range(completions):
        total = total.scatter_add(1, answers[:, k : k + 1], by_log_prob[:, k : k + 1])
    return total


def _advantages(
    rewards: Tensor, group: Tensor, mask: Tensor, algorithm: Algorithm, step_wide: bool
) -> Tensor:
    """``[S * K, 1]``."""
    completions = rewards.shape[1]
    if not step_wide:
        scores = Scores(rewards=rewards.flatten(), group_index=group, mask=mask)
        return algorithm.advantages(scores).view(-1, 1)
    alone = mask[:completions]
    parts = [
        algorithm.advantages(Scores(rewards=row, group_index=group[:completions], mask=alone))
        for row in rewards
    ]
    return torch.cat([part.view(-1, 1) for part in parts])


class _Adam:
    """Adam on all tables; a run whose gradient is 0 makes no step, as in the trainer."""

    def __init__(self, table: Tensor, learning_rate: float) -> None:
        self._table = table
        self._rate = learning_rate
        self._mean = torch.zeros_like(table)
        self._square = torch.zeros_like(table)
        self._count = torch.zeros(len(table), dtype=table.dtype)

    def step(self, problem: Tensor, gradient: Tensor) -> None:
        """Update the table of each run from the gradient of one problem's logits."""
        moves = (gradient != 0).any(dim=1)
        runs = moves.nonzero().flatten()
        full = torch.zeros_like(self._table[runs])
        full[torch.arange(len(runs)), problem[runs]] = gradient[runs]
        self._count[runs] += 1
        self._mean[runs] = 0.9 * self._mean[runs] + 0.1 * full
        self._square[runs] = 0.999 * self._square[runs] + 0.001 * full * full
        count = self._count[runs].view(-1, 1, 1)
        mean = self._mean[runs] / (1 - 0.9**count)
        square = self._square[runs] / (1 - 0.999**count)
        self._table[runs] -= self._rate * mean / (square.sqrt() + 1e-8)
