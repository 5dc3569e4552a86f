"""Sampling in the trainer's own process, from the very weights that are trained."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from verigrad.core.logprobs import tempered, token_log_probs
from verigrad.core.sampling import as_int64, draw_tokens, uniform
from verigrad.engines.base import Draws, Finished
from verigrad.errors import BadNumbersError
from verigrad.policies.base import Policy, device_of
from verigrad.types import Completion, Finish, Prompt, Sampling

ROWS_AT_ONCE = 256
"""Most completions generated side by side, which bounds the memory of their keys and values."""


class LocalEngine:
    """Continues each prompt K times; rows that have finished leave the batch."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._version = 0

    def sync(self, policy_version: int) -> None:
        """Note the version; the weights are shared with the trainer."""
        self._version = policy_version

    def generate(
        self,
        prompts: Sequence[Prompt],
        completions: int,
        sampling: Sampling,
        draws: Draws,
        finished: Finished | None = None,
    ) -> list[tuple[Completion, ...]]:
        """Sample; see :class:`verigrad.engines.base.Engine`."""
        chunk = max(1, ROWS_AT_ONCE // completions)
        found: dict[tuple[int, int], Completion] = {}
        for first in range(0, len(prompts), chunk):
            some = prompts[first : first + chunk]
            keys = [
                draws.key(first + slot, completion)
                for slot in range(len(some))
                for completion in range(completions)
            ]
            for row, completion in self._generate(some, completions, sampling, keys):
                slot, number = first + row // completions, row % completions
                found[slot, number] = completion
                if finished is not None:
                    finished(slot, number, completion)
        return [
            tuple(found[slot, number] for number in range(completions))
            for slot in range(len(prompts))
        ]

    @torch.inference_mode()
    def _generate(
        self, prompts: Sequence[Prompt], completions: int, sampling: Sampling, keys: list[int]
    ) -> Iterator[tuple[int, Completion]]:
        """Each row's number and its completion, as soon as it has ended."""
        device = device_of(self._policy)
        live_keys = torch.tensor([as_int64(key) for key in keys], device=device)
        stops = torch.tensor(sampling.stop_token_ids, dtype=torch.int64, device=device)
        live = torch.arange(len(keys), device=device)
        token_ids = torch.zeros(
            len(keys), sampling.max_new_tokens, dtype=torch.int64, device=device
        )
        log_probs = torch.zeros(token_ids.shape, dtype=torch.float64, device=device)
        rows = self._policy.continuation(prompts, completions)
        for position in range(sampling.max_new_tokens):
            logits, states = rows.logits()
            _check(logits)
            chosen = _choose(logits, states, sampling.temperature, live_keys, position)
            token_ids[live, position] = chosen
            chosen_log_probs = token_log_probs(logits, chosen, sampling.temperature, states)
            log_probs[live, position] = chosen_log_probs.double()
            stopped = torch.isin(chosen, stops)
            is_last = position + 1 == sampling.max_new_tokens
            ended = torch.ones_like(stopped) if is_last else stopped
            over = live[ended]
            yield from zip(
                over.tolist(),
                self._completions(
                    token_ids[over, : position + 1], log_probs[over, : position + 1], stopped[ended]
                ),
                strict=True,
            )
            kept = (~ended).nonzero().flatten()
            if not len(kept):
                break
            rows.advance(kept, chosen[kept])
            live, live_keys = live[kept], live_keys[kept]

    def _completions(
        self, token_ids: Tensor, log_probs: Tensor, stopped: Tensor
    ) -> list[Completion]:
        return [
            Completion(
                token_ids=tuple(ids),
                log_probs=tuple(values),
                finish=Finish.STOPPED if stop else Finish.TRUNCATED,
                policy_version=self._version,
                text=self._policy.decode(ids),
            )
            for ids, values, stop in zip(
                token_ids.tolist(), log_probs.tolist(), stopped.tolist(), strict=True
            )
        ]


def _check(logits: Tensor) -> None:
    """Refuse logits from which no token can be drawn.

    Raises:
        BadNumbersError: the largest of some row is NaN or infinite; -inf elsewhere is fine.
    """
    if not logits.amax(dim=-1).isfinite().all():
        raise BadNumbersError(
            "the policy's logits are not finite, so no token can be drawn; its weights are damaged "
            "or have grown too large, for which a smaller optimizer.learning_rate is the usual cure"
        )


def _choose(
    logits: Tensor, states: Tensor, temperature: float, keys: Tensor, position: int
) -> Tensor:
    """The next token of each row: the likeliest at temperature 0, else drawn."""
    if temperature == 0:
        return logits.argmax(dim=-1)[states]
    return draw_tokens(tempered(logits, temperature), states, uniform(keys, position))
