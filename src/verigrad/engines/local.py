"""Sampling in the trainer's own process, from the very weights that are trained."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from verigrad.config import SamplingConfig
from verigrad.core.logprobs import tempered, token_log_probs
from verigrad.core.sampling import as_int64, draw_tokens, uniform
from verigrad.engines.base import Draws, Finished
from verigrad.errors import BadNumbersError
from verigrad.policies.base import Continuation, Policy, device_of
from verigrad.types import Completion, Finish, Prompt, Sampling

ROWS_AT_ONCE = SamplingConfig.rows_at_once
"""Most completions generated side by side, which bounds the memory of their keys and values."""


class LocalEngine:
    """Continues each prompt K times; rows that have finished make room for those of other prompts.

    Which rows run together depends on how many tokens they have, never on time.
    """

    def __init__(self, policy: Policy, rows_at_once: int = ROWS_AT_ONCE) -> None:
        """Make an engine.

        Args:
            policy: whose weights are sampled from, as they are at the time.
            rows_at_once: most completions side by side; the completions of one prompt start
                together even where they are more.
        """
        self._policy = policy
        self._rows_at_once = rows_at_once
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
        found: dict[tuple[int, int], Completion] = {}
        for row, completion in self._generate(prompts, completions, sampling, draws):
            slot, number = divmod(row, completions)
            found[slot, number] = completion
            if finished is not None:
                finished(slot, number, completion)
        return [
            tuple(found[slot, number] for number in range(completions))
            for slot in range(len(prompts))
        ]

    @torch.inference_mode()
    def _generate(
        self, prompts: Sequence[Prompt], completions: int, sampling: Sampling, draws: Draws
    ) -> Iterator[tuple[int, Completion]]:
        """Each row's number and its completion, as soon as it has ended."""
        device = device_of(self._policy)
        stops = torch.tensor(sampling.stop_token_ids, dtype=torch.int64, device=device)
        keys = [
            as_int64(draws.key(slot, number))
            for slot in range(len(prompts))
            for number in range(completions)
        ]
        all_keys = torch.tensor(keys, device=device)
        token_ids = torch.zeros(
            len(keys), sampling.max_new_tokens, dtype=torch.int64, device=device
        )
        log_probs = torch.zeros(token_ids.shape, dtype=torch.float64, device=device)
        live, position = (torch.zeros(0, dtype=torch.int64, device=device) for _ in range(2))
        rows: Continuation | None = None
        begun = 0
        while begun < len(prompts) or len(live):
            room = max(int(len(live) == 0), (self._rows_at_once - len(live)) // completions)
            some = prompts[begun : begun + room]
            if rows is None:
                rows = self._policy.continuation(some, completions)
            elif some:
                rows.admit(some, completions)
            new = torch.arange(len(some) * completions, device=device) + begun * completions
            live, position = torch.cat([live, new]), torch.cat([position, torch.zeros_like(new)])
            begun += len(some)
            logits, states = rows.logits()
            _check(logits)
            chosen = _choose(logits, states, sampling.temperature, all_keys[live], position)
            token_ids[live, position] = chosen
            chosen_log_probs = token_log_probs(logits, chosen, sampling.temperature, states)
            log_probs[live, position] = chosen_log_probs.double()
            stopped = torch.isin(chosen, stops)
            ended = stopped | (position + 1 == sampling.max_new_tokens)
            for row, length, stop in _lists(live[ended], position[ended] + 1, stopped[ended]):
                yield row, self._completion(token_ids[row, :length], log_probs[row, :length], stop)
            kept = (~ended).nonzero().flatten()
            live, position = live[kept], position[kept] + 1
            if len(kept):
                rows.advance(kept, chosen[kept])
            else:
                rows = None

    def _completion(self, token_ids: Tensor, log_probs: Tensor, stopped: bool) -> Completion:
        ids = token_ids.tolist()
        return Completion(
            token_ids=tuple(ids),
            log_probs=tuple(log_probs.tolist()),
            finish=Finish.STOPPED if stopped else Finish.TRUNCATED,
            policy_version=self._version,
            text=self._policy.decode(ids),
        )


def _lists(rows: Tensor, lengths: Tensor, stopped: Tensor) -> Iterator[tuple[int, int, bool]]:
    return zip(rows.tolist(), lengths.tolist(), stopped.tolist(), strict=True)


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
    logits: Tensor, states: Tensor, temperature: float, keys: Tensor, position: Tensor
) -> Tensor:
    """The next token of each row: the likeliest at temperature 0, else drawn."""
    if temperature == 0:
        return logits.argmax(dim=-1)[states]
    return draw_tokens(tempered(logits, temperature), states, uniform(keys, position))
