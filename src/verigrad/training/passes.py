"""The passes of a batch, with the prompts that several of them have in common."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from verigrad.batch import Tokens
from verigrad.policies.base import Policy
from verigrad.policies.shared_prompt import SharedPrompt
from verigrad.training.memory import TokenBudget, as_budget


class Run(NamedTuple):
    """A pass that is to be made."""

    rows: list[int]

    shared: list[SharedPrompt | None]
    """For each policy, the prompt where it has been run for several passes."""

    runs_prompts: bool
    """Whether the prompts of its rows are run for this pass, in it or right before it."""


def passes(
    policies: Sequence[Policy], tokens: Tokens, rows: Sequence[int], budget: int | TokenBudget
) -> Iterator[Run]:
    """Passes, and for each policy the prompt of a group that does not fit into one pass.

    Such a prompt is run before the first pass of its group, and when all are over its gradient,
    if the passes made one, goes backwards through it.
    """
    group: int | None = None
    shared: list[SharedPrompt | None] = [None for _ in policies]
    for some in as_budget(budget).passes(tokens, rows):
        begins = some.group != group
        if begins:
            _backward(shared)
            group = some.group
            shared = [
                None if group is None else policy.share(tokens.prompts[group])
                for policy in policies
            ]
        yield Run(some.rows, shared, begins or None in shared)
        if some.last:
            _backward(shared)
            group, shared = None, [None for _ in policies]
    _backward(shared)


def _backward(shared: Sequence[SharedPrompt | None]) -> None:
    for prompt in shared:
        if prompt is not None:
            prompt.backward()
