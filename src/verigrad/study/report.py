"""A study: what to run, the table it prints, and the files it writes."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from verigrad.algorithms import PRESETS, Algorithm, algorithm_from
from verigrad.config import AlgorithmConfig
from verigrad.core.statistics import bootstrap_interval
from verigrad.errors import ConfigError, StorageError, UserError
from verigrad.study.estimators import exact_estimate
from verigrad.study.runs import STEP_WIDE, Setting, run_many

SUCCESS_RATES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
LAST = 200
"""A run's result is the mean reward of its last so many steps."""

SOLVED = 0.9
"""A run has learned from the first step at which its mean over the last 50 steps is this high."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of one setting."""

    setting: Setting
    """What all its runs had in common."""

    rewards: Tensor
    """``[S, steps]``."""

    def last(self) -> list[float]:
        """Mean reward of the last steps, per seed."""
        return [float(row.mean()) for row in self.rewards[:, -LAST:]]

    def learned(self) -> list[int | None]:
        """The step from which each seed has learned; None where it has not."""
        window = min(50, self.rewards.shape[1])
        means = self.rewards.unfold(1, window, 1).mean(dim=2)
        return [
            int(hits[0]) + window if len(hits := (row >= SOLVED).nonzero().flatten()) else None
            for row in means
        ]


def algorithm_of(name: str) -> Algorithm:
    """The preset of a name, for completions of one token.

    Raises:
        ConfigError: there is no such preset.
    """
    if name not in PRESETS:
        raise ConfigError(f"study: {name!r} is no preset; there are: {', '.join(PRESETS)}")
    return algorithm_from(AlgorithmConfig(preset=name, overlong_share="off"), max_new_tokens=1)


def settings(
    algorithms: Sequence[str],
    completions: Sequence[int],
    learning_rates: Sequence[float],
    difficulties: Sequence[float],
) -> list[Setting]:
    """Every combination, less those whose group is too small for the preset.

    Raises:
        ConfigError: there is no such preset.
    """
    return [
        Setting(algorithm=name, completions=k, learning_rate=rate, difficulty=difficulty)
        for name, k, rate, difficulty in product(
            algorithms, completions, learning_rates, difficulties
        )
        if k >= algorithm_of(name).smallest_group
    ]


def study(
    chosen: Sequence[Setting], *, seeds: Sequence[int], steps: int, folder: Path | None
) -> str:
    """Run every setting with every seed, and say what came of it.

    Args:
        chosen: the settings.
        seeds: of the runs.
        steps: of each run.
        folder: where CSV files and the figure go; None writes nothing.

    Returns:
        Two tables: learning, and bias and variance of the gradient.

    Raises:
        ConfigError: a preset does not exist, or a figure is wanted and matplotlib is missing.
        UserError: the folder cannot be made; like a missing matplotlib this shows before any run.
        StorageError: a file cannot be written.
    """
    if folder is not None:
        _prepare(folder)
    results = [
        Result(
            setting=setting,
            rewards=run_many(
                setting,
                algorithm_of(setting.algorithm),
                seeds=list(seeds),
                steps=steps,
                step_wide=PRESETS[setting.algorithm].advantage in STEP_WIDE,
            ),
        )
        for setting in chosen
    ]
    learning = [_learning_row(result) for result in results]
    groups = sorted({(setting.algorithm, setting.completions) for setting in chosen})
    bias = [_bias_row(name, k) for name, k in groups]
    if folder is not None:
        try:
            write_csv(folder / "learning.csv", learning)
            write_csv(folder / "gradients.csv", bias)
            draw(folder / "learning.svg", results)
        except OSError as error:
            raise StorageError(
                f"study: a file in {folder} cannot be written: {error.strerror}"
            ) from error
    return f"{as_table(learning)}\n\n{as_table(bias)}"


def _prepare(folder: Path) -> None:
    """See that what the runs give can be written, before hours of them."""
    _figure()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"study: --out {folder} cannot be made: {error.strerror}; name a folder"
        ) from error


Row = dict[str, str]


def _learning_row(result: Result) -> Row:
    setting, last, learned = result.setting, result.last(), result.learned()
    low, high = bootstrap_interval(last)
    reached = sorted(step for step in learned if step is not None)
    middle = len(learned) // 2
    return {
        "algorithm": setting.algorithm,
        "K": str(setting.completions),
        "learning rate": f"{setting.learning_rate:g}",
        "difficulty": f"{setting.difficulty:g}",
        "seeds": str(len(last)),
        f"reward, last {min(LAST, result.rewards.shape[1])}": f"{sum(last) / len(last):.3f}",
        "95 % interval": f"{low:.3f} to {high:.3f}",
        "runs that learned": f"{len(reached)}",
        "median steps to learn": str(reached[middle]) if len(reached) > middle else "-",
    }


def _bias_row(name: str, completions: int) -> Row:
    algorithm = algorithm_of(name)
    estimates = [exact_estimate(algorithm, completions, p) for p in SUCCESS_RATES]
    row = {"algorithm": name, "K": str(completions)}
    row |= {f"w({e.success_rate:g})": f"{e.weight:.3f}" for e in estimates}
    noisy = next(e for e in estimates if e.success_rate == 0.1)
    return row | {
        "deviation/mean at 0.1": f"{noisy.relative_deviation:.2f}",
        "no signal at 0.1": f"{noisy.no_signal:.2f}",
    }


def as_table(rows: Sequence[Row]) -> str:
    """Rows as aligned text."""
    columns = list(rows[0])
    widths = [max(len(name), *(len(row[name]) for row in rows)) for name in columns]
    lines = [columns, *([row[name] for name in columns] for row in rows)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def draw(path: Path, results: Sequence[Result]) -> None:
    """Draw the mean reward of each setting over the steps, with its 95 % band over seeds.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure = _figure()
    axes = figure.subplots()
    for result in results:
        curve = _smooth(result.rewards)
        mean = curve.mean(dim=0)
        # One run has no band.
        deviation = curve.std(dim=0, correction=min(1, len(curve) - 1))
        band = 1.96 * deviation / len(curve) ** 0.5
        steps = range(1, len(mean) + 1)
        s = result.setting
        label = f"{s.algorithm}, K {s.completions}, lr {s.learning_rate:g}"
        axes.plot(steps, mean, label=label if not s.difficulty else f"{label}, +{s.difficulty:g}")
        axes.fill_between(steps, mean - band, mean + band, alpha=0.2)
    axes.set_xlabel("step")
    axes.set_ylabel("mean reward, over 25 steps")
    axes.set_ylim(0, 1.02)
    axes.legend(fontsize="small")
    figure.savefig(path)


def _smooth(rewards: Tensor) -> Tensor:
    """The mean over each 25 steps, ``[S, steps - 24]``; shorter runs as they are."""
    window = min(25, rewards.shape[1])
    return torch.nn.functional.avg_pool1d(rewards.unsqueeze(1), window, stride=1).squeeze(1)


def _figure() -> Any:
    """An empty figure.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ConfigError(
            "study: a figure needs matplotlib, which is not installed: pip install "
            "'verigrad[study]', or leave --out away"
        ) from error
    return Figure(figsize=(8, 5), layout="constrained")
