"""The seam to a policy: what scores completions with gradients, and what generates from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from verigrad.batch import Tokens
from verigrad.policies.shared_prompt import SharedPrompt
from verigrad.types import Problem, Prompt


@dataclass(frozen=True, kw_only=True)
class TokenScores:
    """What a policy says about some tokens."""

    log_probs: Tensor
    """``[B, T]`` with gradient, natural logarithm, 0 off the mask."""

    entropy: Tensor
    """``[B, T]`` in nats, 0 off the mask; with gradient only where that was asked for."""


class Continuation(Protocol):
    """Completions that are being generated, one live row each."""

    def logits(self) -> tuple[Tensor, Tensor]:
        """Logits of the next token, not tempered, and which of them each live row goes on from.

        Returns:
            ``[S, V]``, one for each state that rows are in, and ``[N]`` int64, each live row's
            state. Rows that have been the same so far may share one.
        """
        ...

    def admit(self, prompts: Sequence[Prompt], completions: int) -> None:
        """Start ``completions`` more rows from each prompt, behind those that live."""
        ...

    def advance(self, rows: Tensor, token_ids: Tensor) -> None:
        """Keep some live rows and append one token to each.

        Args:
            rows: ``[M]`` int64, indices into the live rows, ascending; the others leave.
            token_ids: ``[M]`` int64, the token that each kept row goes on with.
        """
        ...


class Policy(Protocol):
    """A model that is trained: renders prompts, scores completions, continues prompts, is saved."""

    module: nn.Module
    """Holds the parameters."""

    stop_token_ids: tuple[int, ...]
    """Tokens that end a completion."""

    max_positions: int | None
    """Most tokens of prompt and completion together, or None for no limit."""

    def encode(self, problem: Problem) -> Prompt:
        """Render a problem's prompt to tokens."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion's tokens, without special tokens."""
        ...

    def score(
        self,
        tokens: Tokens,
        temperature: float,
        *,
        entropy_gradient: bool = False,
        shared: SharedPrompt | None = None,
    ) -> TokenScores:
        """Log-probs and entropy of tokens at a temperature; gradients flow through the log-probs.

        Args:
            tokens: completions laid out, and the prompts they continue.
            temperature: divides the logits.
            entropy_gradient: whether gradients flow through the entropy too.
            shared: the only prompt, where it has been run for several passes; its own gradient
                then waits there.
        """
        ...

    def share(self, prompt: Prompt) -> SharedPrompt | None:
        """Run a prompt once for several passes over its completions; None where it is run in each.

        Gradients flow into it where they are switched on.
        """
        ...

    def continuation(self, prompts: Sequence[Prompt], completions: int) -> Continuation:
        """Start ``completions`` rows from each prompt, rows of a prompt together; no gradients."""
        ...

    def save(self, folder: Path) -> None:
        """Write the policy to an empty folder, in the form that its users load."""
        ...


def device_of(policy: Policy) -> str:
    """Where the policy's parameters live."""
    return str(next(policy.module.parameters()).device)
