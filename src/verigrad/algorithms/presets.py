"""The algorithms by the names people know: what each contains, and where it comes from.

A recipe names its parts; ``build.algorithm_from`` turns it into functions. Every part of a
recipe is a key of ``[algorithm]`` that a configuration may replace, and ``docs/algorithms.md``
shows the same table with each paper's value beside ours. Common to all: one update per batch
unless said otherwise, no divergence term, no correction (sampler and trainer are one model), and
the tokens of groups without signal stay in the denominators unless said otherwise.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The parts of an algorithm by name; None means that the part is off."""

    advantage: str
    advantage_eps: float = 1e-6
    pass_k: int | None = None
    loss: str
    clip_low: float | None = None
    clip_high: float | None = None
    dual_clip: float | None = None
    delta: float | None = None
    aggregation: str
    kl: str | None = None
    kl_beta: float = 0.0
    kl_reset_every: int | None = None
    reference: str = "start"
    correction: str | None = None
    correction_low: float | None = None
    correction_high: float | None = None
    correction_cap: float | None = None
    off_policy_delta: float | None = None
    entropy_coefficient: float = 0.0
    entropy_target: float | None = None
    entropy_step: float = 0.001
    top_entropy: float | None = None
    counts_no_signal: bool = True
    mask_truncated: bool = False
    overlong_share: float | None = None
    epochs: int = 1
    minibatches: int = 1
    max_staleness: int | None = None


PRESETS: dict[str, Recipe] = {
    # DeepSeekMath 2402.03300: each row's mean weighs the same. Its divergence term, k3 in the loss,
    # is off here, as in most runs since.
    "grpo": Recipe(
        advantage="grpo",
        loss="ppo_clip",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="seq_mean_token_mean",
    ),
    # 2503.20783: neither the deviation nor the length divides.
    "dr_grpo": Recipe(
        advantage="dr_grpo",
        loss="ppo_clip",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="const_norm",
    ),
    # 2402.14740: the policy gradient itself, with a leave-one-out baseline.
    "rloo": Recipe(advantage="rloo", loss="reinforce", aggregation="seq_mean_token_sum"),
    # 2503.14476: a higher upper bound, every token alike, groups without signal left out, long
    # completions punished before they are cut.
    "dapo": Recipe(
        advantage="grpo",
        loss="ppo_clip",
        clip_low=0.2,
        clip_high=0.28,
        aggregation="token_mean",
        counts_no_signal=False,
        overlong_share=0.2,
    ),
    # 2507.18071: one ratio per sequence.
    "gspo": Recipe(
        advantage="grpo",
        loss="gspo",
        clip_low=3e-4,
        clip_high=4e-4,
        aggregation="seq_mean_token_mean",
        minibatches=4,
    ),
    # MiniMax-M1 2506.13585, with the bounds of ScaleRL: no token loses its gradient.
    "cispo": Recipe(
        advantage="grpo",
        loss="cispo",
        clip_low=1.0,
        clip_high=4.0,
        aggregation="token_mean",
        minibatches=4,
    ),
    # ScaleRL 2510.13786: CISPO with the deviation of the whole step.
    "scalerl": Recipe(
        advantage="batch_std",
        loss="cispo",
        clip_low=1.0,
        clip_high=4.0,
        aggregation="token_mean",
        counts_no_signal=False,
    ),
    # Lite PPO 2508.08221.
    "lite_ppo": Recipe(
        advantage="batch_std",
        loss="ppo_clip",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="token_mean",
    ),
    # 2602.02710: the gradient of log p, truncated.
    "maxrl": Recipe(advantage="maxrl", loss="reinforce", aggregation="seq_mean_token_sum"),
    # 2501.03262: no group at all; the whole step is the baseline.
    "reinforce_pp": Recipe(
        advantage="reinforce_pp",
        loss="ppo_clip",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="token_mean",
    ),
    "reinforce_pp_baseline": Recipe(
        advantage="reinforce_pp_baseline",
        loss="ppo_clip",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="token_mean",
    ),
    # 2505.23585: the baseline of least variance for losses that sum over tokens.
    "opo": Recipe(advantage="opo", loss="reinforce", aggregation="seq_mean_token_sum"),
    # 2507.20673: tokens clipped in log space, then their geometric mean.
    "gmpo": Recipe(
        advantage="grpo",
        loss="gmpo",
        clip_low=0.4,
        clip_high=0.4,
        aggregation="seq_mean_token_mean",
        minibatches=4,
    ),
    # 2511.20347: a soft gate.
    "sapo": Recipe(advantage="grpo", loss="sapo", aggregation="seq_mean_token_mean", minibatches=4),
    # 2503.14286: only losers are weighted down as the policy leaves them.
    "topr": Recipe(
        advantage="dr_grpo", loss="topr", aggregation="seq_mean_token_sum", minibatches=4
    ),
    # 2602.04879: a trust region in probability.
    "dppo": Recipe(
        advantage="dr_grpo",
        loss="dppo_tv",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="token_mean",
        minibatches=4,
    ),
    # 2602.05261: GSPO without its bias to short completions.
    "luspo": Recipe(
        advantage="grpo",
        loss="luspo",
        clip_low=3e-4,
        clip_high=4e-4,
        aggregation="seq_mean_token_mean",
        minibatches=4,
    ),
    # 2602.10693: a smooth weight of the sequence's ratio.
    "vespo": Recipe(advantage="grpo", loss="vespo", aggregation="token_mean", minibatches=4),
    # 2601.05242: several rewards, each normalised by itself.
    "gdpo": Recipe(
        advantage="gdpo",
        advantage_eps=1e-4,
        loss="ppo_clip",
        clip_low=0.2,
        clip_high=0.2,
        aggregation="seq_mean_token_mean",
    ),
    # 2508.10751: the best of k, centred and scaled.
    "passk": Recipe(
        advantage="passk_analytic",
        pass_k=4,
        loss="ppo_clip",
        clip_low=0.2,
        clip_high=0.28,
        aggregation="token_mean",
    ),
    # 2505.15201: the gradient of pass@k, unbiased.
    "pkpo": Recipe(advantage="pkpo", pass_k=4, loss="reinforce", aggregation="seq_mean_token_sum"),
}
