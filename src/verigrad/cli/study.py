"""``verigrad study``."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from verigrad.cli.app import app, write
from verigrad.config.checks import shown
from verigrad.errors import UserError

Number = TypeVar("Number", int, float)


@app.command(sort_key=4)
def study(
    *,
    algorithms: str = "grpo,dr_grpo,rloo,maxrl",
    completions: str = "8",
    learning_rates: str = "0.5",
    difficulties: str = "0",
    seeds: int = 100,
    steps: int = 1500,
    out: Path | None = None,
) -> int:
    """Train the toy table with many seeds at once, and compare estimators of its gradient.

    verigrad study --algorithms grpo,rloo --completions 2,8 --seeds 100

    Args:
        algorithms: Presets, separated by commas.
        completions: Completions per problem, K, separated by commas; a preset that needs more is
            left out.
        learning_rates: Learning rates of Adam, separated by commas.
        difficulties: What is added to the wrong answers' logits at the start, separated by commas.
        seeds: How many runs of each, seeds 0, 1, 2 and so on.
        steps: Steps of each run.
        out: A folder for learning.csv, gradients.csv and the figure learning.svg.
    """
    from verigrad.study import settings
    from verigrad.study import study as compare

    if seeds < 1 or steps < 1:
        raise UserError(f"study: --seeds is {seeds} and --steps is {steps}; both must be 1 or more")
    chosen = settings(
        algorithms.split(","),
        _numbers("--completions", completions, int, 1),
        _numbers("--learning-rates", learning_rates, float, 0.0),
        _numbers("--difficulties", difficulties, float, 0.0),
    )
    if not chosen:
        raise UserError("study: no preset is left that allows so few --completions")
    return write(compare(chosen, seeds=range(seeds), steps=steps, folder=out))


def _numbers(option: str, text: str, kind: Callable[[str], Number], least: Number) -> list[Number]:
    """Numbers separated by commas."""
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(least <= number < float("inf") for number in numbers):
        raise UserError(
            f"study: {option} is {shown(text)}; it must be numbers of at least {least}, separated "
            "by commas"
        )
    return numbers
