"""Every group of completions enumerated: what the estimators are on average, exactly.

Each goes through what a run uses: group, batch, policy, loss. Its gradient, times the
group's probability, summed over all of them, is the expected gradient of one group.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement, product
from math import asin, comb, factorial, log, prod
from typing import Any

import pytest
import torch
from builders import make_algorithm, make_group
from golden import assert_close, cases, tensor
from numpy.polynomial import legendre
from torch import Tensor

from verigrad.algorithms import Algorithm, Scores
from verigrad.batch import make_batch
from verigrad.config.algorithm import LOSSES
from verigrad.core import advantages, pass_at_k
from verigrad.policies.tabular import TabularPolicy
from verigrad.training.step import loss_of, measure

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
    *,
    reference: TabularPolicy | None = None,
    sampler: TabularPolicy | None = None,
    every_order: bool = False,
) -> Tensor:
    """The mean of minus the loss's gradient over all groups, ``[positions, answers]``.

    A group that the algorithm leaves out of the step counts as 0. The completions are the
    sampler's, by default the policy's own; then it is the older policy of the ratios too.

    A group's gradient is that of its completions in any order, so groups of the same completions
    are computed once, unless every order is wanted.
    """
    total = torch.zeros_like(policy.table[0])
    drawing = sampler or policy
    chances = [probability(drawing, token_ids) for token_ids in completions]
    assert sum(chances) == pytest.approx(1, abs=1e-14)
    for members, orders in groups_of(len(completions), group_size, every_order):
        group = make_group(0, [(completions[index], rewards[index]) for index in members])
        batch = make_batch(
            [group],
            algorithm,
            measure=partial(measure, drawing, reference, temperature=1.0, token_budget=10),
            dtype=torch.float64,
        )
        if batch is None:
            continue
        output = loss_of(policy, batch, algorithm, temperature=1.0)
        (gradient,) = torch.autograd.grad(output.loss, policy.table)
        total -= orders * prod(chances[index] for index in members) * gradient[0]
    return total


def groups_of(count: int, size: int, every_order: bool) -> Iterator[tuple[tuple[int, ...], int]]:
    """Groups of completions by number, and how many orders of the same ones each stands for."""
    if every_order:
        yield from ((members, 1) for members in product(range(count), repeat=size))
        return
    for members in combinations_with_replacement(range(count), size):
        yield members, factorial(size) // prod(map(factorial, Counter(members).values()))


def successes_only(scores: Scores) -> Tensor:
    """MaxRL without its control variate: a success's reward over the group's mean."""
    total = scores.rewards.sum()
    return scores.rewards * len(scores.rewards) / total if total else scores.rewards


USER_BUILT: dict[str, Callable[[Scores], Tensor]] = {
    "reinforce": lambda scores: scores.rewards,
    "maxrl_success_only": successes_only,
    "grpo_population": lambda scores: advantages.grpo(
        scores.rewards, scores.group_index, eps=0.0, ddof=0
    ),
}
"""Estimators that no configuration names, as a person would write them."""


def over_completions(estimator: str, loss: str = "reinforce", **numbers: Any) -> Algorithm:
    """An estimator under the mean over completions of one token each."""
    parts = {"loss": loss, "aggregation": "seq_mean_token_mean"}
    if estimator in USER_BUILT:
        return replace(make_algorithm("rloo", **parts), advantages=USER_BUILT[estimator])
    return make_algorithm("rloo", advantage=estimator, **parts, **numbers)


EVERY_LOSS = [
    pytest.param(*case.values, loss, id=f"{case.id}-{loss}")
    for case in cases("tabular_gradient")
    for loss in LOSSES
    # The groups of four are many; the first update is the same for each loss.
    if case.values[0]["K"] < 4 or loss in ("reinforce", "ppo_clip")
]


@pytest.mark.parametrize(("inputs", "expected", "loss"), EVERY_LOSS)
def test_golden_expected_gradient_of_one_token(
    inputs: dict[str, Any], expected: dict[str, Any], loss: str
) -> None:
    """With the plain loss every tuple in every order, with the others each group once."""
    policy = table_of([inputs["logits"]])
    completions = [(answer,) for answer in range(len(inputs["rewards"]))]
    for estimator, ascent in expected["expected_estimator"].items():
        algorithm = over_completions(estimator, loss, advantage_eps=inputs["grpo_eps"])
        actual = expected_ascent(
            policy, completions, inputs["rewards"], inputs["K"], algorithm,
            every_order=loss == "reinforce",
        )  # fmt: skip
        assert torch.allclose(actual, tensor([ascent]), rtol=0, atol=1e-12), estimator


def grpo_weight(size: int, p: float, eps: float = 0.0) -> float:
    """The closed form of GRPO with an epsilon, over the sample deviation."""
    total = 0.0
    for k in range(1, size):
        deviation = (k * (size - k) / (size * (size - 1))) ** 0.5
        scale = k * (size - k) / (size**2 * (deviation + eps))
        total += comb(size, k) * scale * p ** (k - 1) * (1 - p) ** (size - k - 1)
    return total


def passk_weight(size: int, p: float, k: int, eps: float) -> float:
    """The finite sum of the best of k, centred and scaled: E[(c / K) A+(c)] / (p (1 - p))."""
    total = 0.0
    for c in range(1, size):
        rho = 1 - comb(size - c, k) / comb(size, k)
        scale = (rho * (1 - rho)) ** 0.5
        if scale:
            chance = comb(size, c) * p**c * (1 - p) ** (size - c)
            total += chance * (c / size) * (1 - rho) / (scale + eps)
    return total / (p * (1 - p))


def closed_forms(size: int, p: float) -> list[tuple[str, dict[str, Any], float]]:
    """What each estimator multiplies the true gradient by, for rewards of 0 and 1."""
    each_k = range(1, size + 1)
    return [
        ("reinforce", {}, 1.0),
        ("rloo", {}, 1.0),
        ("dr_grpo", {}, (size - 1) / size),
        ("grpo", {"advantage_eps": 0.0}, grpo_weight(size, p)),
        ("grpo", {"advantage_eps": 1e-6}, grpo_weight(size, p, 1e-6)),
        ("grpo", {"advantage_eps": 0.25}, grpo_weight(size, p, 0.25)),
        ("grpo_population", {}, grpo_weight(size, p) * (size / (size - 1)) ** 0.5),
        ("maxrl", {}, (1 - (1 - p) ** (size - 1)) / p),
        ("maxrl_success_only", {}, (1 - (1 - p) ** size) / p),
        ("best_minus_second", {}, (1 - p) ** (size - 1)),
        *(("pkpo", {"pass_k": k}, k * (1 - p) ** (k - 1)) for k in each_k),
        *(("passk_loo", {"pass_k": k}, k * (1 - p) ** (k - 1)) for k in each_k),
        *(
            ("passk_analytic", {"pass_k": k, "advantage_eps": eps}, passk_weight(size, p, k, eps))
            for k in each_k
            for eps in (0.0, 1e-6)
        ),
    ]


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("rewards", [[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]], ids=["one", "two"])
def test_every_estimator_is_its_closed_form_times_the_true_gradient(
    size: int, rewards: list[float]
) -> None:
    policy = table_of([[0.3, -0.5, 1.1]])
    probabilities = policy.table.detach()[0, 0].softmax(dim=-1)
    p = (probabilities * tensor(rewards)).sum().item()
    true = probabilities * (tensor(rewards) - p)
    for estimator, numbers, weight in closed_forms(size, p):
        algorithm = over_completions(estimator, **numbers)
        actual = expected_ascent(policy, [(0,), (1,), (2,)], rewards, size, algorithm)
        close = torch.allclose(actual[0], weight * true, rtol=0, atol=1e-12)
        assert close, (estimator, numbers)


@pytest.mark.parametrize(("inputs", "expected"), cases("tabular_filter"))
def test_golden_weights_of_groups_that_are_kept_for_their_signal(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    for row in expected["rows"]:
        p, size, kept = row["p"], row["K"], row["P_keep"]
        policy = table_of([[log(p), log(1 - p)]])
        for estimator in ("grpo", "rloo"):
            expected_weight = row[f"w_{estimator}_per_kept_group"]
            params = {"eps": inputs["eps"]} if estimator == "grpo" else {}
            weight = weight_of_true_gradient(estimator, params, size, p) / kept
            assert weight == pytest.approx(expected_weight, rel=1e-9), row
            algorithm = over_completions(
                estimator, advantage_eps=inputs["eps"], counts_no_signal=False
            )
            actual = expected_ascent(policy, [(0,), (1,)], (1.0, 0.0), size, algorithm)
            weight = actual[0, 0].item() / (p * (1 - p)) / kept
            assert weight == pytest.approx(expected_weight, rel=1e-9), row


IN_LOSS_BY_GOLDEN_NAME = {
    "k2_in_loss": "k2",
    "k3_in_loss": "k3",
    "k3_value_k2_grad_in_loss": "k3_value_k2_gradient",
    "k3_is_in_loss": "ratio_k3",
    "k1_is_in_loss": "ratio_k1",
    "k1_in_reward": "k1_in_reward",
    "offpolicy_k2_in_loss": "k2",
    "offpolicy_k3_in_loss": "k3",
    "offpolicy_k3_is_in_loss": "ratio_k3",
    "offpolicy_k1_is_in_loss": "ratio_k1",
}
"""The placements that a configuration can name."""


def held_to_a_reference(name: str, aggregation: str = "seq_mean_token_sum") -> Algorithm:
    """The reward itself, which is 0 here, and a divergence term of weight 1."""
    algorithm = make_algorithm("rloo", aggregation=aggregation, kl=name, kl_beta=1.0, epochs=2)
    return replace(algorithm, advantages=lambda scores: scores.rewards)


@pytest.mark.parametrize(("inputs", "expected"), cases("tab_kl_gradients"))
@pytest.mark.parametrize("golden_name", IN_LOSS_BY_GOLDEN_NAME)
def test_golden_expected_gradient_of_a_divergence_through_the_batch(
    inputs: dict[str, Any], expected: dict[str, Any], golden_name: str
) -> None:
    policy = table_of([inputs["logits"]])
    reference, older = (
        table_of([tensor(inputs[key]).log().tolist()]) for key in ("ref", "old_for_offpolicy")
    )
    actual = expected_ascent(
        policy,
        [(0,), (1,), (2,)],
        (0.0, 0.0, 0.0),
        1,
        held_to_a_reference(IN_LOSS_BY_GOLDEN_NAME[golden_name]),
        reference=reference,
        sampler=older if golden_name.startswith("offpolicy_") else None,
    )
    assert torch.allclose(actual[0], -tensor(expected[golden_name]), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("inputs", "expected"), cases("tab_kl_sequence"))
def test_golden_only_a_divergence_in_the_reward_has_the_gradient_of_a_sequences_divergence(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    policy = table_of([inputs["logits_state0_xE"], inputs["logits_state1_xE"]], (1,))
    reference = table_of(
        [tensor(inputs[f"ref_state{state}_xE"]).log().tolist() for state in (0, 1)], (1,)
    )

    def ascent(algorithm: Algorithm, size: int) -> list[float]:
        completions = list(SEQUENCES.values())
        found = expected_ascent(
            policy, completions, (0.0, 0.0, 0.0), size, algorithm, reference=reference
        )
        return (-found).flatten().tolist()

    in_reward = held_to_a_reference("k1_in_reward")
    for size in (1, 2):
        assert ascent(in_reward, size) == pytest.approx(expected["k1_in_reward_sum"], abs=1e-12)
    assert expected["k1_in_reward_sum"] == pytest.approx(expected["grad_exact"], abs=1e-12)
    with_baseline = make_algorithm("rloo", kl="k1_in_reward", kl_beta=1.0)
    assert ascent(with_baseline, 2) == pytest.approx(expected["grad_exact"], abs=1e-12)
    to_go = replace(
        in_reward,
        advantages=lambda s: -torch.where(s.mask, s.kl, 0.0).flip(1).cumsum(1).flip(1),
    )
    assert ascent(to_go, 1) == pytest.approx(expected["k1_in_reward_to_go"], abs=1e-12)
    for name in ("k2", "k3_value_k2_gradient", "ratio_k1", "ratio_k3"):
        found = ascent(held_to_a_reference(name), 1)
        assert found == pytest.approx(expected["token_k2_in_loss"], abs=1e-12), name


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
    if estimator == "reinforce":
        values = rewards
    elif estimator == "maxrl_success_only":
        values = rewards * size / torch.arange(size + 1).clamp(min=1).repeat_interleave(size)
    else:
        home = pass_at_k if hasattr(pass_at_k, estimator) else advantages
        values = getattr(home, estimator)(rewards, index, **params)
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


KEYS = {"advantage_eps": "eps", "pass_k": "k"}
"""Keys of a configuration, and the functions' own names for them."""


@pytest.mark.parametrize(("inputs", "expected"), cases("tabular_closed_form"))
@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_golden_closed_forms_of_the_weights(
    inputs: dict[str, Any], expected: dict[str, Any], size: int
) -> None:
    assert grpo_weight(2, 0.4) == pytest.approx(expected["grpo_K2"], abs=1e-15)
    assert grpo_weight(3, 0.4) == pytest.approx(expected["grpo_K3"], abs=1e-15)
    for p in inputs["p"]:
        for estimator, numbers, weight in closed_forms(size, p):
            name = "grpo" if estimator == "grpo_population" else estimator
            params = {KEYS[key]: value for key, value in numbers.items()}
            params |= {"eps": 0.0, "ddof": 0} if estimator == "grpo_population" else {}
            actual = weight_of_true_gradient(name, params, size, p)
            assert actual == pytest.approx(weight, rel=1e-9, abs=1e-12), (estimator, numbers, p)


@pytest.mark.parametrize(("inputs", "expected"), cases("tabular_objective"))
def test_golden_objective_that_dividing_by_the_deviation_maximises(
    inputs: dict[str, Any], expected: dict[str, Any]
) -> None:
    """The integral of its weight: linear for two and three, near 2 arcsin(sqrt(p)) for many."""
    nodes, weights = legendre.leggauss(33)
    for row in expected["rows"]:
        size, p = row["K"], row["p"]

        def integral(end: float, size: int = size) -> float:
            # Exact: the weight is a polynomial in p of degree size - 2.
            points = zip((nodes + 1) / 2 * end, weights, strict=True)
            total = sum(
                weight * weight_of_true_gradient("grpo", {"eps": 0.0}, size, float(at))
                for at, weight in points
            )
            return float(total) * end / 2

        actual = weight_of_true_gradient("grpo", {"eps": 0.0}, size, p)
        assert actual == pytest.approx(row["w_K"], rel=1e-9)
        assert integral(p) == pytest.approx(row["J_K"], rel=1e-9)
        assert integral(1.0) == pytest.approx(row["J_K(1)"], rel=1e-9)
        assert 2 * asin(p**0.5) == pytest.approx(row["J_inf"], rel=1e-12)
        assert (p * (1 - p)) ** -0.5 == pytest.approx(row["w_inf"], rel=1e-12)


@pytest.mark.parametrize(("size", "constant"), [(2, 2**-0.5), (3, 2 / 3**0.5)])
def test_dividing_by_the_deviation_only_rescales_groups_of_two_and_three(
    size: int, constant: float
) -> None:
    for p in (0.01, 0.3, 0.8):
        actual = weight_of_true_gradient("grpo", {"eps": 0.0}, size, p)
        assert actual == pytest.approx(constant, abs=1e-12)
