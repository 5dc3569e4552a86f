"""The objectives of the tests, made from the tables of a configuration.

Every advantage, loss and aggregation that are allowed together, and few of them in which any two
meet; every divergence with each of them that it goes together with; every other part crossed with a
sample.
"""

import random
from itertools import combinations
from typing import Any

from builders import allowed_objectives, is_allowed, make_algorithm

from verigrad.algorithms import Algorithm
from verigrad.config.algorithm import CORRECTIONS, DIVERGENCES

ENTROPY_COEFFICIENT = 0.3

MATRIX = allowed_objectives(pass_k=2)

PARTS: list[dict[str, Any]] = [
    *({"kl": name, "kl_beta": 0.1} for name in DIVERGENCES),
    *(
        # Wide enough that some rows stay inside.
        {"correction": name, "correction_low": 0.05, "correction_high": 20.0}
        for name in CORRECTIONS
    ),
    {"off_policy_delta": 0.05},
    {"entropy_coefficient": ENTROPY_COEFFICIENT},
    {"top_entropy": 0.4},
    {"mask_truncated": True},
    {"overlong_share": 0.5},
    {"counts_no_signal": False},
]
"""Every other part, one at a time."""

NOT_SHAPED = ("pkpo", "passk_loo", "passk_analytic", "maxrl", "gdpo", "sum_then_grpo")
"""Advantages that nothing may be added to the reward for."""

EVERYTHING: dict[str, Any] = {
    "kl": "ratio_k3",
    "kl_beta": 0.1,
    "correction": "token_masked",
    "off_policy_delta": 0.05,
    "entropy_coefficient": ENTROPY_COEFFICIENT,
    "top_entropy": 0.6,
    "mask_truncated": True,
    "overlong_share": 0.5,
}
"""Most of them together."""


def usable(parts: dict[str, Any]) -> list[dict[str, Any]]:
    """The objectives of the matrix that go together with other parts, with those on top."""
    return [one | parts for one in MATRIX if is_allowed(**one, **parts)]


def sampled(parts: dict[str, Any], start: int, number: int = 8) -> list[dict[str, Any]]:
    """Some of them, far from each other."""
    every = usable(parts)
    stride = max(1, len(every) // number)
    return [every[(start + stride * place) % len(every)] for place in range(number)]


MEMBERS = ("advantage", "loss", "aggregation")


def together(one: dict[str, Any], number: int) -> set[tuple[str, ...]]:
    """Which members of the tables, so many at a time, meet in an objective."""
    return set(combinations([f"{member} {one[member]}" for member in MEMBERS], number))


def covering(parts: dict[str, Any], number: int = 1) -> list[dict[str, Any]]:
    """Enough of them for every advantage, loss and aggregation to meet the parts.

    With a number of 2, enough for any two of those that go together to meet as well.
    """
    found: list[dict[str, Any]] = []
    met: set[tuple[str, ...]] = set()
    every = usable(parts)
    for one in random.Random(0).sample(every, len(every)):
        names = together(one, number)
        if not names <= met:
            met |= names
            found.append(one)
    return found


PAIRED = covering({}, 2)
"""Objectives in which any two members that go together do."""


HELD = [parts for parts in PARTS if "kl" in parts]
OTHERS = [*(parts for parts in PARTS if "kl" not in parts), EVERYTHING]


def name_of(parts: dict[str, Any]) -> str:
    """The parts in a line."""
    return ", ".join(f"{key}={value}" for key, value in parts.items())


CROSSED = {
    **{name_of(parts): covering(parts) for parts in HELD},
    **{name_of(parts): sampled(parts, 7 * start) for start, parts in enumerate(OTHERS)},
}
"""The parts, each with objectives from all over the matrix."""


def objective(parts: dict[str, Any]) -> Algorithm:
    """The algorithm of these parts; a second epoch makes it use old log-probs."""
    return make_algorithm("rloo", max_new_tokens=4, **({"epochs": 2} | parts))
