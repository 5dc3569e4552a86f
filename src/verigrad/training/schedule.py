"""What changes from step to step by a rule: each with a horizon of its own, not run.steps."""

from verigrad.config import OptimizerConfig


def learning_rate(config: OptimizerConfig, done: int) -> float:
    """The learning rate of the step that follows ``done`` finished ones."""
    if config.decay_steps == "off":
        return config.learning_rate
    return config.learning_rate * max(0.0, 1 - done / config.decay_steps)
