"""The seam to an engine: what samples completions, without gradients."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from verigrad.hashing import Purpose, stable_hash
from verigrad.types import Completion, Prompt, Sampling


@dataclass(frozen=True, kw_only=True, slots=True)
class Draws:
    """Which random numbers to use: each completion's depend on these and on its place only."""

    seed: int
    """Of the run."""

    purpose: Purpose
    """Training and evaluation draw unrelated numbers."""

    step: int
    """A problem met again in a later step draws different numbers."""

    def key(self, slot: int, completion: int) -> int:
        """64 bits for one completion of the problem in a slot of the step."""
        return stable_hash(self.seed, self.purpose, self.step, slot, completion)


Finished = Callable[[int, int, Completion], object]
"""Told of a completion as soon as it has ended: its prompt's slot, its number there, and itself."""


class Engine(Protocol):
    """Samples completions from the policy's current weights."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        completions: int,
        sampling: Sampling,
        draws: Draws,
        finished: Finished | None = None,
    ) -> list[tuple[Completion, ...]]:
        """Sample ``completions`` continuations of each prompt; one tuple per prompt, in order.

        Args:
            prompts: what to continue.
            completions: how many times each.
            sampling: how.
            draws: which random numbers to use.
            finished: called once for each completion while others go on; nothing that it does
                changes what is sampled.
        """
        ...

    def sync(self, policy_version: int) -> None:
        """Take the policy's weights as of a version, which the next completions will carry."""
        ...
