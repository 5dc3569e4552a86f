"""Keeping passes within memory: how much there is, what a pass takes, and smaller ones in time.

On a CPU nothing is raised when memory runs out: the system kills the process. So the memory in use
is looked at before each pass, and what is left of a step is cut smaller when the next pass would
not fit. On a GPU the library raises, and the work is done again with smaller passes. Passes only
add up, so the gradient is the same.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from verigrad import machine
from verigrad.batch import Pass, Tokens, passes_of
from verigrad.config.fields import in_bytes
from verigrad.errors import MemoryLimitError

SHARE = 0.8
"""Of what there is, so much is the limit where the configuration names none."""

Result = TypeVar("Result")


def limit_of(setting: int | str, device: str) -> int | None:
    """The bytes that a run may take on a device; None where nobody says how many there are."""
    if setting == "auto":
        there = available(device)
        return None if there is None else int(SHARE * there)
    return setting if isinstance(setting, int) else in_bytes(setting)


def available(device: str) -> int | None:
    """The bytes of memory of a device; None where the system does not say."""
    if device.startswith("cuda"):
        index = torch.device(device).index or 0
        if index >= torch.cuda.device_count():
            return None
        return torch.cuda.get_device_properties(index).total_memory
    return machine.memory() if device == "cpu" else None


def used(device: str) -> int | None:
    """The bytes that this process takes on a device now; None where the system does not say."""
    if device.startswith("cuda"):
        return torch.cuda.memory_allocated(device)
    return machine.resident() if device == "cpu" else None


def give_back(device: str) -> None:
    """Give back the memory that was freed and is kept for the next use."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    else:
        machine.give_back()


@dataclass(frozen=True, kw_only=True)
class PassCost:
    """The memory that a pass takes on top of what there is between passes, gradients left out."""

    fixed: float
    """Bytes that any pass takes, as the vocabulary head does."""

    per_token: float
    """Bytes for each token."""

    per_pair: float
    """Bytes for each pair of tokens, where attention holds them all."""

    def bytes(self, tokens: int) -> int:
        """What a pass of so many tokens takes."""
        return int(self.fixed + tokens * (self.per_token + self.per_pair * tokens))


def cost_from(few: tuple[int, int], many: tuple[int, int]) -> PassCost:
    """The cost that two passes show: with pairs where a token costs more among many, else without.

    Args:
        few: tokens and bytes of the smaller pass.
        many: those of the larger one; may be the same.

    Example: ``cost_from((10, 1000), (20, 2400))`` is 80 bytes a token and 2 a pair: 80 * 10 + 2 *
    100 = 1000 and 80 * 20 + 2 * 400 = 2400. ``cost_from((10, 1000), (20, 1600))`` is 400 bytes and
    60 a token.
    """
    (fewer, small), (more, large) = few, many
    apart = more - fewer
    if apart == 0:
        return PassCost(fixed=0.0, per_token=large / more, per_pair=0.0)
    rise = (large / more - small / fewer) / apart
    first = large / more - rise * more
    if first < 0:
        # The small pass was over before anybody looked, and says nothing.
        return PassCost(fixed=0.0, per_token=large / more, per_pair=0.0)
    if rise >= 0:
        return PassCost(fixed=0.0, per_token=first, per_pair=rise)
    slope = max(0.0, (large - small) / apart)
    return PassCost(fixed=large - slope * more, per_token=slope, per_pair=0.0)


@dataclass(frozen=True, kw_only=True)
class MemoryWatch:
    """Whether another pass fits."""

    limit: int
    """Bytes that may be in use."""

    device: str
    cost: PassCost

    module: nn.Module
    """Holds the parameters; a pass makes the gradients that are not there yet."""

    def fits(self, tokens: int) -> bool:
        """Whether a pass of so many tokens stays below the limit."""
        needed = self.needed(tokens)
        if self.used() + needed <= self.limit:
            return True
        give_back(self.device)
        return self.used() + needed <= self.limit

    def used(self) -> int:
        """The bytes in use now."""
        return used(self.device) or 0

    def needed(self, tokens: int) -> int:
        """The bytes that a pass of so many tokens takes now, with the gradients it makes."""
        return self.cost.bytes(tokens) + missing_gradients(self.module)

    def words(self, tokens: int) -> str:
        """Why a pass of so many tokens does not fit."""
        return (
            f"{in_words(self.used())} of memory are in use and a pass of {tokens:,} tokens takes "
            f"about {in_words(self.needed(tokens))} more, beyond run.memory_limit "
            f"({in_words(self.limit)})"
        )


def missing_gradients(module: nn.Module) -> int:
    """Bytes of the gradients that a pass will make."""
    parameters = (value for value in module.parameters() if value.requires_grad)
    return sum(value.nbytes for value in parameters if value.grad is None)


class TokenBudget:
    """Most tokens in one pass; a number that gets smaller when memory runs short."""

    def __init__(
        self,
        tokens: int,
        watch: MemoryWatch | None = None,
        say: Callable[[str], None] = lambda _: None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin with a budget.

        Args:
            tokens: the most in a pass; a longer row is a pass of its own.
            watch: looks at memory before each pass; None where nobody does.
            say: told in a sentence when the budget has got smaller and a pass fits again.
            settle: waits for what takes memory for a while, as the copy for a checkpoint does.
        """
        self.tokens = tokens
        self._watch = watch
        self._say = say
        self._settle = settle
        self._running: tuple[int, int] | None = None
        self._reason: str | None = None

    def passes(self, tokens: Tokens, rows: Sequence[int]) -> Iterator[Pass]:
        """Which rows go together, pass by pass; the next is cut when the one before is over.

        Raises:
            MemoryLimitError: a single row does not fit.
        """
        left = list(rows)
        begun: int | None = None
        while left:
            for some in passes_of(tokens, left, self.tokens):
                # The prompt of a group that is cut is in memory from its first pass on.
                new = some.tokens - (some.prompt if some.group == begun else 0)
                if self._watch is not None and not self._fits(self._watch, new):
                    self._shrink(len(some.rows), some.tokens, self._watch.words(new))
                    break
                self._announce()
                self._running = len(some.rows), some.tokens
                yield some
                self._running = None
                begun = some.group
                done = set(some.rows)
                left = [row for row in left if row not in done]

    def run(self, work: Callable[[], Result]) -> Result:
        """Do work that is made of passes; again from its beginning where memory ran out in one.

        Args:
            work: takes its passes from this budget; can be done again.

        Raises:
            MemoryLimitError: memory ran out in a pass of a single row, or between passes.
        """
        while True:
            try:
                return work()
            except torch.OutOfMemoryError as error:
                reason = f"memory ran out ({str(error).splitlines()[0]})"
                if self._running is None:
                    raise MemoryLimitError(
                        f"{reason} between passes, where smaller ones do not help; train a smaller "
                        "model, or use a device with more memory"
                    ) from error
            # Outside of the handler, whose traceback holds the tensors of the pass that failed.
            (rows, size), self._running = self._running, None
            self._shrink(rows, size, reason)

    def _fits(self, watch: MemoryWatch, size: int) -> bool:
        """Whether a pass fits, now or once nothing else takes memory for a while."""
        if watch.fits(size):
            return True
        self._settle()
        return watch.fits(size)

    def _shrink(self, rows: int, size: int, reason: str) -> None:
        """Halve the budget, or what did not fit where that is less.

        Raises:
            MemoryLimitError: it was a single row.
        """
        if rows == 1:
            raise MemoryLimitError(
                f"{reason}, and that was a single completion with its prompt, the least that a "
                "pass can be; raise run.memory_limit if there is more memory, or lower "
                "sampling.max_new_tokens"
            )
        self.tokens = max(1, min(self.tokens, size) // 2)
        self._reason = self._reason or reason
        if self._watch is not None:
            give_back(self._watch.device)

    def _announce(self) -> None:
        """Say once how small passes have become."""
        if self._reason is not None:
            self._say(
                f"{self._reason}; passes have at most {self.tokens:,} tokens from here on, with "
                "which the gradient is the same but for rounding"
            )
            self._reason = None


def as_budget(budget: "int | TokenBudget") -> TokenBudget:
    """A number is a budget that nobody watches."""
    return TokenBudget(budget) if isinstance(budget, int) else budget


def in_words(count: float) -> str:
    """A number of bytes as a person says it: 340 MB."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
