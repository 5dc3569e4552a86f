"""Every tuple of completions enumerated: what the estimators are on average, exactly.

Each tuple goes through what a run uses: group, batch, policy, loss. Its gradient, times the tuple's
probability, summed over all tuples, is the expected gradient of one group.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import comb, prod
from typing import Any

import pytest
import torch
from builders import batch_of, make_algorithm, make_group
from golden import assert_close, cases, tensor
from torch import Tensor

from verigrad.algorithms import Algorithm
from verigrad.config.schema import LOSSES
from verigrad.core import advantages
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.step import loss_of

SEQUENCES = {"E": (1,), "xE": (0, 1), "xx": (0, 0)}
"""All completions of two positions over the tokens x = 0 and E = 1, which stops."""


def table_of(logits: Any, stop_token_ids: tuple[int, ...] | None = None) -> TabularPolicy:
    """The policy of one problem with these logits, ``[positions][answers]``."""
    values = tensor(logits)
    policy = TabularPolicy(
        ["p0"],
        answers=values.shape[1],
        positions=values.shape[0],
        stop_token_ids=stop_token_ids,
        dtype=torch.float64,
    )
    policy.table.data[0] = values
    return policy


def probability(policy: TabularPolicy, token_ids: Sequence[int]) -> float:
    log_probs = policy.table.detach()[0].log_softmax(dim=-1)
    return prod(log_probs[t, token].exp().item() for t, token in enumerate(token_ids))


def expected_ascent(
    policy: TabularPolicy,
    completions: Sequence[tuple[int, ...]],
    rewards: Sequence[float],
    group_size: int,
    algorithm: Algorithm,
) -> Tensor:
    """The mean of minus the loss's gradient over all groups, ``[positions, answers]``."""
    total = torch.zeros_like(policy.table[0])
    chances = [probability(policy, token_ids) for token_ids in completions]
    assert sum(chances) == pytest.approx(1, abs=1e-14)
    for members in product(range(len(completions)), repeat=group_size):
        group = make_group(0, [(completions[index], rewards[index]) for index in members])
        output = loss_of(policy, batch_of([group], algorithm), algorithm, temperature=1.0)
        (gradient,) = torch.autograd.grad(output.loss, policy.table)
        total -= prod(chances[index] for index in members) * gradient[0]
    return total


def one_token_algorithm(estimator: str, loss: str, eps: float) -> Algorithm:
    """An estimator under the mean over completions; ``reinforce`` is the reward itself."""
    if estimator == "reinforce":
        return replace(make_algorithm("rloo", loss=loss), advantages=lambda scores: scores.rewards)
    return make_algorithm("rloo", loss=loss, advantage=estimator, advantage_eps=eps)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("inputs", "expected"), cases("tabular_gradient"))
def test_golden_expected_gradient_of_one_token(
    inputs: dict[str, Any], expected: dict[str, Any], loss: str
) -> None:
    policy = table_of([inputs["logits"]])
    completions = [(answer,) for answer in range(len(inputs["rewards"]))]
    for estimator, ascent in expected["expected_estimator"].items():
        algorithm = one_token_algorithm(estimator, loss, inputs["grpo_eps"])
        actual = expected_ascent(policy, completions, inputs["rewards"], inputs["K"], algorithm)
        assert torch.allclose(actual, tensor([ascent]), rtol=0, atol=1e-12), estimator


@pytest.mark.parametrize(("inputs", "expected"), cases("tabular_ar"))
def test_golden_expected_gradient_of_sequences(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    policy = table_of([inputs["logits_state0_xE"], inputs["logits_state1_xE"]], (1,))
    completions = [SEQUENCES[name] for name in inputs["sequences"]]
    for name, ascent in expected["expected_direction"].items():
        advantage, aggregation = name.split("/")
        algorithm = make_algorithm(
            advantage=advantage,
            aggregation=aggregation,
            advantage_eps=inputs["grpo_eps"],
            max_new_tokens=inputs["const_norm_L"],
        )
        actual = expected_ascent(policy, completions, inputs["rewards"], inputs["K"], algorithm)
        assert torch.allclose(actual.flatten(), tensor(ascent), rtol=0, atol=1e-12), name


@pytest.mark.parametrize(("inputs", "expected"), cases("tabular_ar"))
def test_only_a_sum_over_tokens_and_a_constant_keep_the_direction_of_the_true_gradient(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    policy = table_of([inputs["logits_state0_xE"], inputs["logits_state1_xE"]], (1,))
    completions, rewards = list(SEQUENCES.values()), inputs["rewards"]
    log_probs = policy.table[0].log_softmax(dim=-1)
    chances = [
        torch.stack([log_probs[t, token] for t, token in enumerate(token_ids)]).sum().exp()
        for token_ids in completions
    ]
    mean = sum(chance * reward for chance, reward in zip(chances, rewards, strict=True))
    (true,) = torch.autograd.grad(mean, policy.table)
    assert_close(true[0].flatten(), expected["grad_J"])
    for aggregation, scale in [("seq_mean_token_sum", 1.0), ("const_norm", 1 / 2)]:
        algorithm = make_algorithm("rloo", aggregation=aggregation, max_new_tokens=2)
        actual = expected_ascent(policy, completions, rewards, 3, algorithm)
        assert torch.allclose(actual, scale * true[0], rtol=0, atol=1e-12)


def weight_of_true_gradient(estimator: str, params: dict[str, Any], size: int, p: float) -> float:
    """What a group's estimator multiplies the true gradient by, for rewards of 0 and 1.

    One group of each number of successes; the mean of the score given success is grad p / p, and
    given failure -grad p / (1 - p).
    """
    rewards = tensor([[1.0] * k + [0.0] * (size - k) for k in range(size + 1)]).flatten()
    index = torch.arange(size + 1).repeat_interleave(size)
    values = rewards
    if estimator != "reinforce":
        values = getattr(advantages, estimator)(rewards, index, **params)
    rows = values.reshape(size + 1, size)
    return sum(
        comb(size, k)
        * p**k
        * (1 - p) ** (size - k)
        * (rows[k, :k].sum().item() / p - rows[k, k:].sum().item() / (1 - p))
        / size
        for k in range(size + 1)
    )


@pytest.mark.parametrize(("inputs", "expected"), cases("tabular_weight"))
def test_golden_weights_of_the_true_gradient(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    for row in expected["rows"]:
        actual = weight_of_true_gradient(row["estimator"], row["params"], row["K"], row["p"])
        assert actual == pytest.approx(row["w"], rel=1e-9, abs=1e-9), row


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_closed_forms_of_the_weights(size: int, p: float) -> None:
    grpo = sum(
        comb(size, k)
        * (k * (size - k) * (size - 1) / size**3) ** 0.5
        * p ** (k - 1)
        * (1 - p) ** (size - k - 1)
        for k in range(1, size)
    )
    closed = {
        ("rloo", None): 1.0,
        ("dr_grpo", None): (size - 1) / size,
        ("grpo", 1): grpo,
        ("grpo", 0): grpo * (size / (size - 1)) ** 0.5,
    }
    for (estimator, ddof), expected in closed.items():
        params = {} if ddof is None else {"eps": 0.0, "ddof": ddof}
        actual = weight_of_true_gradient(estimator, params, size, p)
        assert actual == pytest.approx(expected, abs=1e-12), estimator


@pytest.mark.parametrize(("size", "constant"), [(2, 2**-0.5), (3, 2 / 3**0.5)])
def test_dividing_by_the_deviation_only_rescales_groups_of_two_and_three(
    size: int, constant: float
) -> None:
    for p in (0.01, 0.3, 0.8):
        actual = weight_of_true_gradient("grpo", {"eps": 0.0}, size, p)
        assert actual == pytest.approx(constant, abs=1e-12)
