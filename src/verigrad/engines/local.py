"""Sampling in the trainer's own process, from the very weights that are trained."""

from collections.abc import Sequence

import torch
from torch import Tensor

from verigrad.core.logprobs import tempered, token_log_probs
from verigrad.core.sampling import as_int64, draw_tokens, uniform
from verigrad.engines.base import Draws
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
        self, prompts: Sequence[Prompt], completions: int, sampling: Sampling, draws: Draws
    ) -> list[tuple[Completion, ...]]:
        """Sample; see :class:`verigrad.engines.base.Engine`."""
        chunk = max(1, ROWS_AT_ONCE // completions)
        result: list[tuple[Completion, ...]] = []
        for first in range(0, len(prompts), chunk):
            some = prompts[first : first + chunk]
            keys = [
                draws.key(first + slot, completion)
                for slot in range(len(some))
                for completion in range(completions)
            ]
            rows = self._generate(some, completions, sampling, keys)
            result += [
                tuple(rows[start : start + completions])
                for start in range(0, len(rows), completions)
            ]
        return result

    @torch.inference_mode()
    def _generate(
        self, prompts: Sequence[Prompt], completions: int, sampling: Sampling, keys: list[int]
    ) -> list[Completion]:
        device = device_of(self._policy)
        live_keys = torch.tensor([as_int64(key) for key in keys], device=device)
        stops = torch.tensor(sampling.stop_token_ids, dtype=torch.int64, device=device)
        live = torch.arange(len(keys), device=device)
        token_ids = torch.zeros(
            len(keys), sampling.max_new_tokens, dtype=torch.int64, device=device
        )
        log_probs = torch.zeros(token_ids.shape, dtype=torch.float64, device=device)
        lengths = torch.zeros_like(live)
        stopped = torch.zeros_like(live, dtype=torch.bool)
        rows = self._policy.continuation(prompts, completions)
        for position in range(sampling.max_new_tokens):
            logits, states = rows.logits()
            _check(logits)
            chosen = _choose(logits, states, sampling.temperature, live_keys, position)
            token_ids[live, position] = chosen
            chosen_log_probs = token_log_probs(logits, chosen, sampling.temperature, states)
            log_probs[live, position] = chosen_log_probs.double()
            lengths[live] = position + 1
            ends = torch.isin(chosen, stops)
            stopped[live] = ends
            kept = (~ends).nonzero().flatten()
            if position + 1 == sampling.max_new_tokens or not len(kept):
                break
            rows.advance(kept, chosen[kept])
            live, live_keys = live[kept], live_keys[kept]
        return self._completions(token_ids, log_probs, lengths, stopped)

    def _completions(
        self, token_ids: Tensor, log_probs: Tensor, lengths: Tensor, stopped: Tensor
    ) -> list[Completion]:
        return [
            Completion(
                token_ids=tuple(ids[:length]),
                log_probs=tuple(values[:length]),
                finish=Finish.STOPPED if stop else Finish.TRUNCATED,
                policy_version=self._version,
                text=self._policy.decode(ids[:length]),
            )
            for ids, values, length, stop in zip(
                token_ids.tolist(),
                log_probs.tolist(),
                lengths.tolist(),
                stopped.tolist(),
                strict=True,
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
