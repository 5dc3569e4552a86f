"""One training pass made for its time and its memory, and not for its gradient."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event

import torch

from verigrad.algorithms import Algorithm
from verigrad.batch import Batch
from verigrad.batch.cutting import weighted
from verigrad.policies.causal_lm import CausalLM
from verigrad.training.memory import give_back, used
from verigrad.training.step import accumulate
from verigrad.types import Prompt

SECONDS_BETWEEN_LOOKS = 0.001


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The completions of one prompt."""

    prompt: Prompt
    rows: int
    length: int
    """Tokens of each completion."""

    @property
    def tokens(self) -> int:
        """Of the prompt, once, and of all completions."""
        return len(self.prompt.token_ids) + self.rows * self.length

    def within(self, budget: int) -> "Shape":
        """As many rows as a pass of the budget has, at least one."""
        rows = (budget - len(self.prompt.token_ids)) // self.length
        return replace(self, rows=max(1, min(self.rows, rows)))

    def scaled(self, share: float) -> "Shape":
        """The share of the tokens, or a little less, in as many rows; at least one of each."""
        ids = self.prompt.token_ids
        prompt = Prompt(problem_id="", token_ids=ids[: max(1, int(len(ids) * share))])
        return replace(self, prompt=prompt, length=max(1, int(self.length * share)))


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What a pass took."""

    tokens: int
    seconds: float
    bytes: int | None
    """At its peak, beyond what there was before; None where the system does not say."""


def try_pass(
    policy: CausalLM, algorithm: Algorithm, temperature: float, device: str, shape: Shape
) -> Taken:
    """Go forwards and backwards once, as an update does it; gradients add up.

    Args:
        policy: gets gradients, and is left as it is otherwise.
        algorithm: whose loss is taken.
        temperature: that completions are sampled at.
        device: where the policy lives.
        shape: the sizes of the pass; its tokens are made up.
    """
    batch = _batch(policy, algorithm, shape, device)

    def work() -> None:
        accumulate(
            policy,
            batch,
            algorithm,
            temperature=temperature,
            token_budget=shape.tokens,
            entropy_coefficient=algorithm.entropy.coefficient if algorithm.entropy else 0.0,
        )

    seconds, taken = peak(work, device)
    return Taken(tokens=shape.tokens, seconds=seconds, bytes=taken)


def _batch(policy: CausalLM, algorithm: Algorithm, shape: Shape, device: str) -> Batch:
    """Completions of made-up tokens, which differ from their first token on."""
    vocabulary = policy.module.get_input_embeddings().weight.shape[0]
    rows = torch.arange(shape.rows, device=device)
    places = torch.arange(shape.length, device=device)
    zeros = torch.zeros(shape.rows, shape.length, device=device)
    batch = Batch(
        prompts=(shape.prompt,),
        group_index=torch.zeros_like(rows),
        token_ids=(rows.unsqueeze(1) + places) % vocabulary,
        lengths=torch.full_like(rows, shape.length),
        mask=torch.ones_like(zeros, dtype=torch.bool),
        sampling_log_probs=zeros,
        old_log_probs=None,
        advantages=torch.ones_like(zeros),
        weights=zeros,
        reference_log_probs=zeros if algorithm.divergence else None,
    )
    return weighted(batch, algorithm, None)


def peak(work: Callable[[], object], device: str) -> tuple[float, int | None]:
    """Seconds that some work takes, and its most bytes beyond what there was before.

    Args:
        work: done once.
        device: where its memory is; None comes for one whose system does not say.
    """
    return _cuda_peak(work, device) if device.startswith("cuda") else _peak(work, device)


def _cuda_peak(work: Callable[[], object], device: str) -> tuple[float, int]:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    started = time.perf_counter()
    work()
    torch.cuda.synchronize(device)
    seconds = time.perf_counter() - started
    return seconds, torch.cuda.max_memory_allocated(device) - before


def _peak(work: Callable[[], object], device: str) -> tuple[float, int | None]:
    """Seconds and the most bytes while it works, which a thread looks at again and again.

    The system's own record of the most would be that of loading the model.
    """
    give_back(device)
    before = used(device)
    over = Event()
    with ThreadPoolExecutor(1, thread_name_prefix="preflight") as pool:
        most = pool.submit(_most_until, over, device)
        started = time.perf_counter()
        try:
            work()
        finally:
            over.set()
        seconds = time.perf_counter() - started
    return seconds, None if before is None else max(0, most.result() - before)


def _most_until(over: Event, device: str) -> int:
    most = used(device) or 0
    while not over.wait(SECONDS_BETWEEN_LOOKS):
        most = max(most, used(device) or 0)
    return most
