"""Batches of ragged rows for language models, and what to measure on them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from tiny import VOCABULARY
from torch import Tensor

from verigrad.algorithms import PRESETS, Algorithm, algorithm_from
from verigrad.batch import Batch, make_batch
from verigrad.config import AlgorithmConfig
from verigrad.core.head import head_scores
from verigrad.policies import causal_lm
from verigrad.policies.causal_lm import CausalLM
from verigrad.training.step import Update, update
from verigrad.types import Completion, Finish, Group, Problem, Prompt, Rollout, Verdict


def preset(name: str, **changes: Any) -> Algorithm:
    """An algorithm by name, with some parts replaced."""
    assert name in PRESETS
    return algorithm_from(AlgorithmConfig(preset=name, **changes), max_new_tokens=8)


def prompts_of(*lengths: int, seed: int = 0) -> list[Prompt]:
    """Prompts of random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return [
        Prompt(
            problem_id=f"p{index}",
            token_ids=tuple(torch.randint(VOCABULARY, (length,), generator=generator).tolist()),
        )
        for index, length in enumerate(lengths)
    ]


def as_prompts(token_ids: Sequence[Sequence[int]]) -> list[Prompt]:
    """Prompts of given tokens."""
    return [Prompt(problem_id="", token_ids=tuple(ids)) for ids in token_ids]


def completion_of(token_ids: Sequence[int], log_probs: Sequence[float] | None = None) -> Completion:
    """A completion of given tokens."""
    return Completion(
        token_ids=tuple(token_ids),
        log_probs=tuple(log_probs or [-1.0] * len(token_ids)),
        finish=Finish.STOPPED,
        policy_version=0,
        text="",
    )


def group_of(
    prompt: Prompt, completions: Sequence[Completion], rewards: Sequence[float | None]
) -> Group:
    """A group with given rewards; None is a failed verdict."""
    return Group(
        problem=Problem(id=prompt.problem_id, prompt="", reference=None),
        rollouts=tuple(
            Rollout(
                prompt=prompt,
                completion=completion,
                verdict=Verdict.failed("") if reward is None else Verdict.scored(reward),
            )
            for completion, reward in zip(completions, rewards, strict=True)
        ),
    )


Shape = tuple[tuple[int, tuple[int, ...]], ...]
"""Length of the prompt and of each of its completions, group by group."""

RAGGED: Shape = ((1, (3, 1, 7)), (9, (5, 6, 1, 2)), (3, (1, 1)))
"""The longest prompt and the longest completion exceed WINDOW."""


def ragged_groups(shape: Shape = RAGGED, *, seed: int = 0) -> list[Group]:
    """Groups of random tokens. Rewards are 1, 1/2, 1/3, ..., so that every row trains."""
    generator = torch.Generator().manual_seed(seed + 1)
    prompts = prompts_of(*(length for length, _ in shape), seed=seed)
    return [
        group_of(
            prompt,
            [
                completion_of(torch.randint(VOCABULARY, (length,), generator=generator).tolist())
                for length in lengths
            ],
            [1 / (place + 1) for place in range(len(lengths))],
        )
        for prompt, (_, lengths) in zip(prompts, shape, strict=True)
    ]


def ragged_batch(
    dtype: torch.dtype = torch.float32, *, shape: Shape = RAGGED, algorithm: str = "grpo"
) -> Batch:
    """The batch of ``ragged_groups``."""
    batch = make_batch(ragged_groups(shape), preset(algorithm), dtype=dtype)
    assert batch is not None
    return batch


def gradients(policy: CausalLM) -> dict[str, Tensor]:
    """A copy of every parameter's gradient."""
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in policy.module.named_parameters()
    }


@dataclass(frozen=True)
class Scored:
    """What a policy made of a batch."""

    log_probs: Tensor
    entropy: Tensor
    gradients: dict[str, Tensor]
    """Of a combination of the log-probs with random factors, the same for any padding."""


def scored(policy: CausalLM, batch: Batch, temperature: float = 0.7) -> Scored:
    """Score a batch and go backwards."""
    policy.module.zero_grad()
    scores = policy.score(batch, temperature)
    generator = torch.Generator().manual_seed(5)
    rows, width = batch.mask.shape
    columns = [torch.randn(rows, generator=generator) for _ in range(width)]
    (torch.stack(columns, dim=1) * scores.log_probs).sum().backward()
    return Scored(scores.log_probs.detach(), scores.entropy, gradients(policy))


def largest(values: Tensor) -> float:
    """The largest magnitude."""
    return float(values.detach().abs().max())


def relative_difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Largest difference of any entry, in units of the largest entry wanted."""
    largest = max(float(values.abs().max()) for values in wanted.values())
    assert largest > 0
    return max(float((found[name] - wanted[name]).abs().max()) for name in wanted) / largest


@dataclass
class Positions:
    """How many positions a model has worked on."""

    entered: int = 0
    """Token ids through the embedding, padding included if there were any."""

    through_head: int = 0
    """Rows through the vocabulary head."""


@contextmanager
def counted_positions(policy: CausalLM) -> Iterator[Positions]:
    """Count while the block runs, with hooks on first and last layers and around the fused head."""
    positions = Positions()

    def enter(module: Any, inputs: tuple[Tensor, ...]) -> None:
        positions.entered += inputs[0].numel()

    def leave(module: Any, inputs: tuple[Tensor, ...]) -> None:
        positions.through_head += inputs[0].shape[:-1].numel()

    def fused(hidden: Tensor, *others: Any, **options: Any) -> Any:
        positions.through_head += len(hidden)
        return head_scores(hidden, *others, **options)

    hooks = [
        policy.module.get_input_embeddings().register_forward_pre_hook(enter),
        policy.module.get_output_embeddings().register_forward_pre_hook(leave),
    ]
    try:
        with patch.object(causal_lm, "head_scores", fused):
            yield positions
    finally:
        for hook in hooks:
            hook.remove()


def update_once(
    policy: CausalLM,
    batch: Batch,
    *,
    learning_rate: float = 1e-2,
    token_budget: int = 10**9,
) -> Update | None:
    """One plain gradient step at temperature 1."""
    return update(
        policy,
        batch,
        preset("grpo"),
        torch.optim.SGD(policy.module.parameters(), lr=learning_rate),
        temperature=1.0,
        clip_norm=1.0,
        token_budget=token_budget,
    )
