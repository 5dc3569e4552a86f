"""What changes from step to step by a rule: each with a horizon of its own, not run.steps."""

import statistics
from collections.abc import Iterator, Sequence

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch, LossOutput, minibatches
from verigrad.config import OptimizerConfig
from verigrad.hashing import Purpose, stable_hash
from verigrad.training.state import TrainerState
from verigrad.types import Group


def learning_rate(config: OptimizerConfig, done: int) -> float:
    """The learning rate of the step that follows ``done`` finished ones."""
    if config.decay_steps == "off":
        return config.learning_rate
    return config.learning_rate * max(0.0, 1 - done / config.decay_steps)


def shuffled(batch: Batch | None, algorithm: Algorithm, seed: int, done: int) -> Iterator[Batch]:
    """The batches of a step's updates: rows are shuffled anew in each epoch.

    Args:
        batch: of the whole step; None has no updates.
        algorithm: says how many epochs, and how many minibatches in each.
        seed: of the run.
        done: finished steps.
    """
    if batch is None:
        return
    for epoch in range(algorithm.epochs):
        place = (seed, Purpose.ROWS, done, epoch)
        rows = sorted(range(len(batch.mask)), key=lambda row: stable_hash(*place, row))
        yield from minibatches(batch, algorithm, rows)


def steer(
    state: TrainerState, algorithm: Algorithm, output: LossOutput | None, groups: Sequence[Group]
) -> None:
    """After a step's updates: steer the entropy bonus, and reset the reference when that is due.

    Args:
        state: of the step that is being made; changed.
        algorithm: says the target of the bonus, and how often the reference is reset.
        output: of the updates; None when none was made.
        groups: what was sampled, where nothing trained; none where an update went wrong.
    """
    bonus, divergence = algorithm.entropy, algorithm.divergence
    if bonus is not None and bonus.target is not None:
        entropy = _entropy(output, groups)
        if entropy is not None:
            change = bonus.step if entropy < bonus.target else -bonus.step
            state.entropy_coefficient = max(0.0, state.entropy_coefficient + change)
    every = divergence.reset_every if divergence is not None else None
    if every is not None and (state.step + 1) % every == 0:
        state.reset_reference()


def _entropy(output: LossOutput | None, groups: Sequence[Group]) -> float | None:
    """Nats per token: exact where tokens trained, else what the sampled ones say; None without any.

    A policy that has become sure has groups without signal only. With a bonus of weight 0 nothing
    trains there, and the weight has to grow all the same.
    """
    if output is not None:
        return output.entropy / output.tokens
    rows = (rollout.completion.log_probs for group in groups for rollout in group.rollouts)
    surprises = [-log_prob for log_probs in rows for log_prob in log_probs]
    return statistics.fmean(surprises) if surprises else None
