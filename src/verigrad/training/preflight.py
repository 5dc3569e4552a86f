"""Before the first step: a pass as large as the configuration allows, to see whether runs fit.

A group of the longest prompt and of completions as long as they may get is trained on and then
forgotten: no gradient, no state and no random number is left of it. Two smaller passes go before
it. The first makes the gradients and whatever libraries make once; each says how large the next may
be, and the last two show how memory grows.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import torch

from verigrad.algorithms import Algorithm
from verigrad.config import Config
from verigrad.errors import MemoryLimitError
from verigrad.policies.causal_lm import CausalLM
from verigrad.training.memory import (
    MemoryWatch,
    cost_from,
    give_back,
    in_words,
    limit_of,
    missing_gradients,
    used,
)
from verigrad.training.trial import Shape, Taken, try_pass
from verigrad.types import Prompt

BOUNDS = {"cpu": (1024, 2048), "cuda": (2048, 8192)}
"""Of the budget that is chosen, by kind of device: a pass of fewer tokens is slower per token, and
one of more than the second is no faster and takes more memory."""

DEFAULT = BOUNDS["cpu"][1]
"""The budget where nothing has to be measured."""

UNWATCHED = "; memory is not watched: this system does not say how much there is and is taken"

WARM_UP, SMALL = 1 / 16, 1 / 4
"""Sizes of the smaller passes, as shares of the large one."""


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What was seen, and what follows from it."""

    token_budget: int
    """Most tokens in a pass: what was asked for, or what was chosen."""

    watch: MemoryWatch | None
    """Looks at memory from now on; None where the system does not say how much is in use."""

    words: str
    """A line for people."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the passes showed."""

    few: Taken
    many: Taken
    base: int
    """Bytes that there will be between passes: with gradients, and the two moments of AdamW."""


def preflight(
    policy: CausalLM,
    algorithm: Algorithm,
    prompts: Sequence[Prompt],
    config: Config,
    device: str,
    budget: int | None,
) -> Preflight:
    """Make the passes, choose the token budget where it is not given, and forget them.

    Args:
        policy: without gradients; it has none afterwards.
        algorithm: the run's, whose loss is taken.
        prompts: those of the run, at least one.
        config: names the limit and the sizes of a step.
        device: where the policy lives.
        budget: most tokens in a pass; None chooses.

    Raises:
        MemoryLimitError: a single completion of the longest kind does not fit.
    """
    limit = limit_of(config.run.memory_limit, device)
    group = largest_group(prompts, config)
    wanted = bounded(group.tokens, device) if budget is None else budget
    shape = group.within(wanted)
    one_pass = partial(try_pass, policy, algorithm, config.sampling.temperature, device)
    try:
        seen = _look(policy, shape, one_pass, limit, device)
    except torch.OutOfMemoryError as error:
        raise MemoryLimitError(
            f"memory ran out in a first pass of {shape.scaled(SMALL).tokens:,} tokens "
            f"({str(error).splitlines()[0]}); train a smaller model, or use a device with more"
        ) from error
    finally:
        policy.module.zero_grad(set_to_none=True)
        give_back(device)
    watch = _watch(policy, seen, limit, device)
    if watch is None:
        words = _words(seen, wanted) + UNWATCHED
        return Preflight(token_budget=wanted, watch=None, words=words)
    row = group.within(1).tokens
    _check_row(watch, seen.base, row)

    def peak(tokens: int) -> int:
        whole = config.sampling.problems * group.tokens
        return seen.base + watch.cost.bytes(min(max(tokens, row), whole))

    while budget is None and peak(wanted) > watch.limit:
        wanted = max(1, wanted // 2)
    words = _words(seen, wanted) + _reach(peak(wanted), watch.limit)
    return Preflight(token_budget=wanted, watch=watch, words=words)


def _words(seen: Seen, budget: int) -> str:
    one, taken = seen.many, seen.many.bytes
    memory = "" if taken is None else f" and {in_words(taken)}"
    return (
        f"preflight: a pass of {one.tokens:,} tokens takes {one.seconds:.2g} s{memory}; at most "
        f"{budget:,} tokens in a pass"
    )


def _reach(peak: int, limit: int) -> str:
    """How far passes go."""
    goes = "are used" if peak <= limit else "would be used, so they will get smaller"
    return f", with which about {in_words(peak)} of {in_words(limit)} (run.memory_limit) {goes}"


def largest_group(prompts: Sequence[Prompt], config: Config) -> Shape:
    """The longest prompt, all completions, each as long as it may be."""
    return Shape(
        prompt=max(prompts, key=lambda prompt: len(prompt.token_ids)),
        rows=config.sampling.completions,
        length=config.sampling.max_new_tokens,
    )


def bounded(tokens: int, device: str) -> int:
    """The budget that a largest group of so many tokens asks for."""
    low, high = BOUNDS["cuda" if device.startswith("cuda") else "cpu"]
    return min(max(tokens, low), high)


def _look(
    policy: CausalLM,
    shape: Shape,
    one_pass: Callable[[Shape], Taken],
    limit: int | None,
    device: str,
) -> Seen:
    """A small pass, and as large a one as is safe up to the whole shape."""
    made = missing_gradients(policy.module)
    first = one_pass(shape.scaled(WARM_UP))
    few = replace(first, bytes=None if first.bytes is None else max(0, first.bytes - made))
    give_back(device)
    moments = 2 * sum(p.nbytes for p in policy.module.parameters() if p.requires_grad)
    base = (used(device) or 0) + missing_gradients(policy.module) + moments
    share = _safe_share(few, shape, limit, base)
    if share > WARM_UP:
        few = one_pass(shape.scaled(min(SMALL, share)))
        give_back(device)
    many, share = few, _safe_share(few, shape, limit, base)
    if share * shape.tokens > few.tokens:
        # Where a GPU has less than its limit says, the small pass tells alone.
        with suppress(torch.OutOfMemoryError):
            many = one_pass(shape.scaled(share))
    return Seen(few=few, many=many, base=base)


def _safe_share(seen: Taken, shape: Shape, limit: int | None, base: int) -> float:
    """The share of the shape that stays below the limit, if a token costs what it has cost."""
    if limit is None or not seen.bytes:
        return 1.0
    return min(1.0, (limit - base) / (seen.bytes / seen.tokens * shape.tokens))


def _watch(policy: CausalLM, seen: Seen, limit: int | None, device: str) -> MemoryWatch | None:
    few, many = seen.few, seen.many
    if limit is None or few.bytes is None or many.bytes is None:
        return None
    cost = cost_from((few.tokens, few.bytes), (many.tokens, many.bytes))
    return MemoryWatch(limit=limit, device=device, cost=cost, module=policy.module)


def _check_row(watch: MemoryWatch, base: int, row: int) -> None:
    needed = base + watch.cost.bytes(row)
    if needed > watch.limit:
        raise MemoryLimitError(
            f"a single completion with its prompt may have {row:,} tokens, and training on it "
            f"takes about {in_words(needed)} of memory ({in_words(base)} of it for weights, "
            f"gradients and the optimizer's moments), but run.memory_limit is "
            f"{in_words(watch.limit)}; raise it if there is more memory, or lower "
            "sampling.max_new_tokens"
        )
