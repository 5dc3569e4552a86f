"""Which combinations of parts are known to be wrong, and what to know about some that are not."""

from collections.abc import Collection

from verigrad.algorithms.presets import Recipe
from verigrad.core.losses import PPO_CLIP
from verigrad.errors import ConfigError

SEQUENCE_LOSSES = ("gspo", "gmpo", "luspo")
"""Losses whose value is the same on every token of a row, made for the mean over rows."""

ROW_MEANS = ("seq_mean_token_mean", "seq_mean_token_mean_all")

ON_POLICY_LOSSES = ("reinforce", "on_policy")
"""Losses without a ratio: only the first update on a batch is that of the sampling policy."""

PASS_AT_K = ("passk_analytic", "pkpo", "passk_loo")

GEOMETRIC_LOSSES = ("gspo", "gspo_token", "luspo")
"""Losses whose ratio is the geometric mean of a row's."""

BY_PART = ("gdpo", "sum_then_grpo")
"""Advantages of the named parts of a reward."""

ADDED = "overlong_share and kl 'k1_in_reward'"
"""What is added to a reward after it was verified."""


def refuse_wrong(recipe: Recipe) -> None:
    """Refuse parts that do not go together.

    Raises:
        ConfigError: says which parts, why, and what to do.
    """
    for wrong, why in _wrongs(recipe):
        if wrong:
            raise ConfigError(f"algorithm: {why}")


def _wrongs(recipe: Recipe) -> list[tuple[bool, str]]:
    r = recipe
    adds = r.kl == "k1_in_reward" or r.overlong_share is not None
    highest = 1 + (PPO_CLIP if r.clip_high is None else r.clip_high)
    return [
        (
            r.loss in SEQUENCE_LOSSES and r.aggregation not in ROW_MEANS,
            f"loss {r.loss!r} is one number per completion, and aggregation {r.aggregation!r} "
            f"would weight it by length, which is another objective; use {ROW_MEANS[0]!r}",
        ),
        (
            r.loss in SEQUENCE_LOSSES and r.advantage == "reinforce_pp" and r.kl == "k1_in_reward",
            f"loss {r.loss!r} is one number per completion, but with kl 'k1_in_reward' advantage "
            "'reinforce_pp' gives each token its own; use loss 'gspo_token', or a divergence "
            "in the loss ('ratio_k3')",
        ),
        (
            r.kl == "k1" and r.kl_beta > 0,
            "kl 'k1' as a loss has an expected gradient of 0, so it only adds noise; use "
            "'ratio_k3', or 'k1_in_reward'",
        ),
        (
            r.kl in ("k2_in_reward", "k3_in_reward"),
            f"kl {r.kl!r}: in the reward only k1 has the gradient of the divergence (k3 there has "
            "that of one direction less the other); use 'k1_in_reward'",
        ),
        (
            r.kl is not None and r.kl_beta == 0,
            f'kl is {r.kl!r} but kl_beta is 0; set kl_beta (0.001 is usual), or kl = "off"',
        ),
        (
            r.kl is None and r.kl_beta > 0,
            f"kl_beta is {r.kl_beta:g} but kl is off; name an estimator, 'ratio_k3' for one",
        ),
        (
            r.advantage in PASS_AT_K and r.pass_k is None,
            f"advantage {r.advantage!r} needs pass_k, the k of pass@k",
        ),
        (
            r.advantage in BY_PART and adds,
            f"advantage {r.advantage!r} sees the named parts of the reward, not what "
            f"{ADDED} add to the whole; make the length a part, and the divergence "
            "a term of the loss ('ratio_k3')",
        ),
        (
            r.advantage in (*PASS_AT_K, "maxrl") and adds,
            f"advantage {r.advantage!r} takes rewards of 0 and 1 (maxrl: of at least 0), and "
            f'{ADDED} make others of them; set overlong_share to "off", and have '
            "the divergence in the loss ('ratio_k3')",
        ),
        (
            r.delta is not None and r.loss == "ppo_clip" and r.delta <= highest,
            f"delta is {r.delta}; it bounds the ratio beyond the clip, so it must be above "
            f"1 + clip_high = {highest:g}",
        ),
        (
            (r.dual_clip is not None or r.delta is not None) and r.loss != "ppo_clip",
            f"dual_clip and delta are parts of loss 'ppo_clip', not of {r.loss!r}",
        ),
    ]


def notes_on(recipe: Recipe, changed: Collection[str]) -> tuple[str, ...]:
    """What a person should know about a combination that is allowed.

    Args:
        recipe: the combination.
        changed: the keys that a configuration gives.
    """
    r = recipe
    several = r.epochs * r.minibatches > 1
    known = [
        (
            r.kl == "k3",
            "kl 'k3' in the loss has the gradient of KL(reference || policy), the other direction "
            "than its value; it is here to reproduce published runs, 'ratio_k3' is the usual wish",
        ),
        (
            r.kl in ("k2", "k3", "k3_value_k2_gradient") and several,
            f"kl {r.kl!r} is right for the first update on a batch only, and there are "
            f"{r.epochs * r.minibatches}; 'ratio_k3' is right for all of them",
        ),
        (
            r.loss in ON_POLICY_LOSSES and several,
            f"loss {r.loss!r} has no ratio, so updates after the first on a batch are biased; "
            "'ppo_clip' and 'cispo' have one",
        ),
        (
            r.loss in GEOMETRIC_LOSSES and "clip_high" in changed and (r.clip_high or 0.0) > 0.05,
            f"clip_high is {r.clip_high}; the ratio of {r.loss!r} is a geometric mean that stays "
            "close to 1, and its paper clips at 0.0004",
        ),
        (
            r.loss in SEQUENCE_LOSSES and r.top_entropy is not None,
            f"loss {r.loss!r} is one number per completion, so top_entropy weighs completions by "
            "their share of such tokens, and all of their tokens train",
        ),
    ]
    return tuple(words for applies, words in known if applies)
