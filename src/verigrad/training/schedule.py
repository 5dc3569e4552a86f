"""What changes from step to step by a rule: each with a horizon of its own, not run.steps."""

from collections.abc import Iterator

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch, LossOutput, minibatches
from verigrad.config import OptimizerConfig
from verigrad.hashing import Purpose, stable_hash
from verigrad.training.state import TrainerState


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


def steer(state: TrainerState, algorithm: Algorithm, output: LossOutput | None) -> None:
    """After a step's updates: steer the entropy bonus, and reset the reference when that is due.

    Args:
        state: of the step that is being made; changed.
        algorithm: says the target of the bonus, and how often the reference is reset.
        output: of the updates; None when none was made.
    """
    bonus, divergence = algorithm.entropy, algorithm.divergence
    if output is not None and bonus is not None and bonus.target is not None:
        change = bonus.step if output.entropy / output.tokens < bonus.target else -bonus.step
        state.entropy_coefficient = max(0.0, state.entropy_coefficient + change)
    every = divergence.reset_every if divergence is not None else None
    if every is not None and (state.step + 1) % every == 0:
        state.reset_reference()
