"""A table of logits: one row per problem and position. The whole loop in milliseconds.

It consumes the same batch as a language model, and small enough tables can be enumerated, so that
every expectation of the loop can be compared with its closed form.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from verigrad.batch import Tokens
from verigrad.core.logprobs import entropy, token_log_probs
from verigrad.errors import TaskError
from verigrad.hashing import stable_hash
from verigrad.policies.base import TokenScores
from verigrad.policies.shared_prompt import SharedPrompt
from verigrad.types import Problem, Prompt


class TabularPolicy:
    """Logits ``[P, T, V]`` by problem, position and answer; initialised from N(0, 1) by a seed."""

    max_positions: int | None = None

    def __init__(
        self,
        problem_ids: Sequence[str],
        *,
        answers: int = 10,
        positions: int = 1,
        stop_token_ids: tuple[int, ...] | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Make a table for some problems.

        Args:
            problem_ids: the problems, one row of the table each.
            answers: how many answers there are, the ``V`` of the table.
            positions: longest completion, the ``T`` of the table.
            stop_token_ids: answers that end a completion; by default all of them.
            seed: of the initial logits.
            dtype: of the logits.
        """
        self.problem_ids = tuple(problem_ids)
        self.stop_token_ids = tuple(range(answers)) if stop_token_ids is None else stop_token_ids
        self._row = {name: row for row, name in enumerate(self.problem_ids)}
        generator = torch.Generator().manual_seed(stable_hash("tabular", seed) >> 1)
        shape = (len(self.problem_ids), positions, answers)
        self.module = nn.Module()
        self.table = nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype))
        self.module.register_parameter("table", self.table)

    def encode(self, problem: Problem) -> Prompt:
        """The row of the problem as the only token.

        Raises:
            TaskError: the table has no row for it.
        """
        if problem.id not in self._row:
            raise TaskError(
                f"problem {problem.id!r} has no row in the table, which holds "
                f"{len(self._row)} problems; a tabular policy needs a finite task"
            )
        return Prompt(problem_id=problem.id, token_ids=(self._row[problem.id],))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The answers' numbers, separated by spaces."""
        return " ".join(str(token) for token in token_ids)

    def share(self, prompt: Prompt) -> None:
        """Nothing: a prompt is a row of the table, with no work to share."""
        del prompt

    def score(
        self,
        tokens: Tokens,
        temperature: float,
        *,
        entropy_gradient: bool = False,
        shared: SharedPrompt | None = None,
    ) -> TokenScores:
        """Look the tokens up; see :class:`verigrad.policies.base.Policy`."""
        del shared
        rows = torch.tensor([prompt.token_ids[0] for prompt in tokens.prompts])
        logits = self.table[rows[tokens.group_index], : tokens.mask.shape[1]]
        log_probs = token_log_probs(logits, tokens.token_ids, temperature)
        nats = entropy(logits if entropy_gradient else logits.detach(), temperature)
        return TokenScores(
            log_probs=torch.where(tokens.mask, log_probs, 0.0),
            entropy=torch.where(tokens.mask, nats, 0.0),
        )

    def continuation(self, prompts: Sequence[Prompt], completions: int) -> "TabularContinuation":
        """Start rows from prompts."""
        return TabularContinuation(self.table.detach(), prompts, completions)

    def save(self, folder: Path) -> None:
        """Write ``policy.safetensors`` and ``policy.json``."""
        save_file({"table": self.table.detach().contiguous()}, folder / "policy.safetensors")
        description = {"kind": "tabular", "problem_ids": self.problem_ids}
        (folder / "policy.json").write_text(json.dumps(description, indent=2) + "\n")


class TabularContinuation:
    """Rows that walk along the positions of the table.

    Those of a problem that started together are in one state.
    """

    def __init__(self, table: Tensor, prompts: Sequence[Prompt], completions: int) -> None:
        self._table = table
        self._problem, self._position, self._states = (
            torch.zeros(0, dtype=torch.int64) for _ in range(3)
        )
        self.admit(prompts, completions)

    def logits(self) -> tuple[Tensor, Tensor]:
        """Logits ``[S, V]`` at each state's position, and each live row's state."""
        return self._table[self._problem, self._position], self._states

    def admit(self, prompts: Sequence[Prompt], completions: int) -> None:
        """Start more rows at the first position, behind those that live."""
        problems = torch.tensor([prompt.token_ids[0] for prompt in prompts])
        states = torch.arange(len(prompts)) + len(self._problem)
        self._problem = torch.cat([self._problem, problems])
        self._position = torch.cat([self._position, torch.zeros_like(problems)])
        self._states = torch.cat([self._states, states.repeat_interleave(completions)])

    def advance(self, rows: Tensor, token_ids: Tensor) -> None:
        """Keep some rows and go to the next position."""
        del token_ids
        kept, self._states = torch.unique(self._states[rows], return_inverse=True)
        self._problem = self._problem[kept]
        self._position = self._position[kept] + 1
