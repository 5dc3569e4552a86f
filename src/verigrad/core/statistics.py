"""Intervals for accuracies.

The problem is the sampling unit: completions of one problem are not independent.
"""

import math

import torch


def wilson_interval(successes: float, trials: int, *, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval for a share, 95 % at z = 1.96; stays within [0, 1].

    Args:
        successes: from 0 to ``trials``; a fraction where a trial is a mean.
        trials: at least 1.
        z: quantile of the normal distribution.
    """
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def bootstrap_interval(per_problem: list[float], *, resamples: int = 2000) -> tuple[float, float]:
    """95 % percentile interval of a mean over problems, resampling problems with a fixed seed.

    Args:
        per_problem: one mean per problem, at least one problem.
        resamples: how many draws.
    """
    values = torch.tensor(per_problem, dtype=torch.float64)
    draws = torch.Generator().manual_seed(0)
    picks = torch.randint(len(values), (resamples, len(values)), generator=draws)
    means = values[picks].mean(dim=1)
    low, high = torch.quantile(means, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def pass_at_k(completions: int, successes: int, k: int) -> float:
    """Chance that k of the completions hold a success, unbiased: Chen et al. 2107.03374, eq. 1.

        1 - C(n - c, k) / C(n, k);  1 where fewer than k failed

    Args:
        completions: n, independent samples of one problem.
        successes: c of them.
        k: at least 1 and at most n.

    Raises:
        ValueError: k is larger than n, for which there is no unbiased estimate.
    """
    if not 1 <= k <= completions:
        raise ValueError(f"pass@{k} needs at least {k} completions of a problem, not {completions}")
    return 1.0 - math.comb(completions - successes, k) / math.comb(completions, k)


def mean_and_error(per_problem: list[float]) -> tuple[float, float]:
    """Mean over problems and its standard error; the problem is the unit (2411.00640).

    Args:
        per_problem: one mean per problem, at least two.
    """
    values = torch.tensor(per_problem, dtype=torch.float64)
    return values.mean().item(), (values.std() / math.sqrt(len(values))).item()
