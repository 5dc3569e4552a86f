"""What a person sees while a run goes on: lines on stderr, results on stdout."""

import time
from collections.abc import Sequence
from typing import Any, TextIO, cast

from rich.console import Console
from rich.table import Table
from rich.text import Text

from verigrad.diagnosis import Finding, Metrics
from verigrad.escaping import give_up, one_line, printable

SECONDS_BETWEEN_LINES = 0.5
"""Steps that are faster than this do not get a line each."""


class _Console(Console):
    """A console whose reader may leave (``| head``), or disk fill: the run goes on, unseen."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, or say nothing from now on."""
        try:
            super().print(*objects, **options)
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Say nothing more."""
        self.quiet = True
        give_up(cast(TextIO, self.file))


class Progress:
    """A line per step, rich on a terminal and plain when piped."""

    def __init__(self, steps: int, *, quiet: bool = False) -> None:
        """Prepare for a run of some steps; ``quiet`` shows nothing at all."""
        self._steps = steps
        self._log = _Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)
        self._out = _Console(highlight=False, soft_wrap=True, quiet=quiet)
        self._shown = float("-inf")
        self._seconds: list[float] = []

    def note(self, text: str) -> None:
        """Say one thing."""
        self._log.print(Text(one_line(text)))

    def warn(self, finding: Finding) -> None:
        """Say what is wrong."""
        text = f"step {finding.step}: {finding.cause.replace('_', ' ')}: {finding.message}"
        self._log.print(Text(one_line(text), style="yellow"))

    def alert(self, text: str) -> None:
        """Say one thing that must not be overlooked."""
        self._log.print(Text(one_line(f"warning: {text}"), style="yellow"))

    def step(self, metrics: Metrics) -> None:
        """Show a step."""
        self._seconds = [*self._seconds, metrics["time/step"] or 0.0][-20:]
        step = int(metrics["step"] or 0)
        now = time.monotonic()
        matters = metrics["eval/accuracy"] is not None or step == self._steps
        if not matters and now - self._shown < SECONDS_BETWEEN_LINES:
            return
        self._shown = now
        self._log.print(Text(self._line(step, metrics)))

    def _line(self, step: int, metrics: Metrics) -> str:
        reward = metrics["reward/mean"]
        accuracy = metrics["eval/accuracy"]
        left = (self._steps - step) * sum(self._seconds) / len(self._seconds)
        parts = [
            f"step {step:>{len(str(self._steps))}}/{self._steps}",
            "reward  none" if reward is None else f"reward {reward:5.2f}",
            f"groups with signal {metrics['groups/with_signal']}/{metrics['groups/total']}",
            f"{metrics['time/tokens_per_second'] or 0:,.0f} tokens/s",
            f"{duration(left)} left",
        ]
        if accuracy is not None:
            parts.insert(2, f"held-out accuracy {accuracy:.2f}")
        return "  ".join(parts)

    def result(self, text: str) -> None:
        """Print a result."""
        self._out.print(Text(one_line(text)))

    def comparison(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Print completions before and after, side by side."""
        table = Table("prompt", "before", "after", show_lines=True)
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        self._out.print(table, soft_wrap=False)


def duration(seconds: float) -> str:
    """Seconds as a person says them: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
