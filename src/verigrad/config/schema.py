"""The configuration: one frozen dataclass per TOML section, checked when it is made.

A field's type, range and docstring are all there is to know about a key. Nothing is derived in
secret: two keys never change each other.
"""

from dataclasses import dataclass, field, fields
from typing import Annotated, Literal, get_type_hints

from verigrad.config.checks import Matching, OneOf, Range, mismatch
from verigrad.errors import ConfigError

TASKS = ("addition", "toy")
"""The built-in tasks; anything else is ``file.py:name``."""

MODELS = ("smollm2-135m", "tabular")
"""The model aliases; anything else is a folder or a hub id ``owner/name``."""

PRESETS = (
    "grpo",
    "dr_grpo",
    "rloo",
    "dapo",
    "gspo",
    "cispo",
    "scalerl",
    "lite_ppo",
    "maxrl",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "opo",
    "gmpo",
    "sapo",
    "topr",
    "dppo",
    "luspo",
    "vespo",
    "gdpo",
    "passk",
    "pkpo",
)
"""The algorithms; anything else is ``file.py:name``."""

ADVANTAGES = (
    "grpo",
    "dr_grpo",
    "rloo",
    "batch_std",
    "maxrl",
    "best_minus_second",
    "passk_analytic",
    "pkpo",
    "passk_loo",
    "opo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "gdpo",
    "sum_then_grpo",
)
LOSSES = (
    "reinforce",
    "on_policy",
    "ppo_clip",
    "cispo",
    "gspo",
    "gspo_token",
    "gmpo",
    "sapo",
    "topr",
    "dppo_tv",
    "luspo",
    "vespo",
)
NEED_NO_GROUP = ("reinforce_pp",)
"""Advantages that have a signal with one completion per problem."""

DIVERGENCES = ("k2", "k3", "k3_value_k2_gradient", "ratio_k1", "ratio_k3", "k1_in_reward")
WRONG_DIVERGENCES = ("k1", "k2_in_reward", "k3_in_reward")
"""Known, and refused with the reason."""

CORRECTIONS = (
    "token_truncated",
    "token_masked",
    "sequence_truncated",
    "sequence_masked",
    "geometric_masked",
)
AGGREGATIONS = (
    "token_mean",
    "seq_mean_token_mean",
    "seq_mean_token_mean_all",
    "seq_mean_token_sum",
    "const_norm",
    "group_token_mean",
)


PositiveInt = Annotated[int, Range(low=1)]
Count = Annotated[int, Range(low=0)]
PositiveFloat = Annotated[float, Range(low=0, above=True)]
NonNegativeFloat = Annotated[float, Range(low=0)]
Fraction = Annotated[float, Range(low=0, high=1)]
LineText = Annotated[
    str,
    Matching(
        r"[^\x00-\x1f\x7f\ud800-\udfff]+",
        "text in quotes, not empty and without control characters",
    ),
]
DeviceText = Annotated[
    str, Matching(r"auto|cpu|mps|cuda(:\d+)?", '"auto", "cpu", "cuda" or "cuda:1"')
]


class Section:
    """Checks every field of a configuration section against its type and range when it is made."""

    def __post_init__(self) -> None:
        """Raise ConfigError naming the field, what was found and what is accepted."""
        hints = get_type_hints(type(self), include_extras=True)
        for spec in fields(self):  # type: ignore[arg-type]
            problem = mismatch(getattr(self, spec.name), hints[spec.name])
            if problem:
                raise ConfigError(f"{type(self).__name__}.{spec.name} {problem}")


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Section):
    """What is trained on."""

    name: LineText
    """A built-in name, or ``file.py:name`` for a task of your own."""

    held_out: Annotated[float, Range(low=0, high=0.9)] = 0.2
    """Share of the problems kept for evaluation, chosen by a stable hash of their content."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """What is trained."""

    name: LineText
    """An alias, a folder, a hub id ``owner/name``, or "tabular"."""


Off = Literal["off"]
"""Turns a part of a preset off."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Section):
    """The objective: a preset, and the parts of it that this run replaces.

    A part that is left out is the preset's. "off" turns a part off that the preset has.
    """

    preset: LineText = "grpo"
    """The algorithm by the name people know, or ``file.py:name`` for one of your own."""

    advantage: Annotated[str, OneOf(ADVANTAGES)] | None = None
    """Rewards of groups to advantages."""

    advantage_eps: NonNegativeFloat | None = None
    """Added to the deviation that divides the advantage."""

    pass_k: PositiveInt | None = None
    """The k of pass@k, for the advantages that have one."""

    loss: Annotated[str, OneOf(LOSSES)] | None = None
    """Loss per token."""

    clip_low: Fraction | None = None
    """The ratio is clipped below 1 - clip_low; for gmpo and dppo_tv the distance from 0."""

    clip_high: NonNegativeFloat | None = None
    """The ratio is clipped above 1 + clip_high; for gmpo and dppo_tv the distance from 0."""

    dual_clip: Annotated[float, Range(low=1, above=True)] | Off | None = None
    """Bounds the loss of a negative advantage at this many times the advantage."""

    delta: Annotated[float, Range(low=1, above=True)] | Off | None = None
    """Bounds the ratio of the unclipped branch."""

    aggregation: Annotated[str, OneOf(AGGREGATIONS)] | None = None
    """The rule that gives each token its weight."""

    kl: Annotated[str, OneOf((*DIVERGENCES, *WRONG_DIVERGENCES, "off"))] | None = None
    """The divergence term that holds the policy to a reference."""

    kl_beta: NonNegativeFloat | None = None
    """Its weight."""

    kl_reset_every: PositiveInt | Off | None = None
    """After so many steps the reference becomes the current policy."""

    reference: LineText | None = None
    """The reference: a model's alias, folder or hub id, or "start" for the starting weights."""

    correction: Annotated[str, OneOf((*CORRECTIONS, "off"))] | None = None
    """Weights for completions that another policy sampled."""

    correction_low: NonNegativeFloat | None = None
    """Ratios below it are masked."""

    correction_high: PositiveFloat | None = None
    """Ratios above it are masked."""

    correction_cap: PositiveFloat | None = None
    """Ratios above it are cut to it."""

    off_policy_delta: NonNegativeFloat | Off | None = None
    """Drops lost completions that the policy has left by more than this, in nats per token."""

    entropy_coefficient: NonNegativeFloat | None = None
    """Weight of the entropy bonus."""

    entropy_target: NonNegativeFloat | Off | None = None
    """Entropy in nats that the weight of the bonus is steered towards."""

    entropy_step: PositiveFloat | None = None
    """How much the steered weight changes per step."""

    top_entropy: Annotated[float, Range(low=0, high=1, above=True)] | Off | None = None
    """Share of the tokens, those of highest entropy, that have a policy loss."""

    counts_no_signal: bool | None = None
    """Whether tokens of groups without signal stay in the denominators."""

    mask_truncated: bool | None = None
    """Whether completions that reached the length limit are left out of the loss."""

    overlong_share: Annotated[float, Range(low=0, high=1, above=True)] | Off | None = None
    """Share of max_new_tokens, the last one, over which length is punished up to -1."""

    epochs: PositiveInt | None = None
    """How many times each batch is gone through."""

    minibatches: PositiveInt | None = None
    """Optimiser updates per epoch."""

    max_staleness: Count | Off | None = None
    """Completions sampled more updates ago than this are left out."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(Section):
    """Where and how long."""

    folder: LineText | None = None
    """The run folder; without it the next free ``runs/NAME-N``."""

    seed: Count = 0
    """Decides the problems drawn and every sampled token."""

    steps: PositiveInt = 20
    """How many times to collect completions and update."""

    device: DeviceText = "auto"
    """"cpu", "cuda", "cuda:1", ... ; "auto" takes a GPU when there is one."""

    threads: PositiveInt | Literal["auto"] = "auto"
    """CPU threads; "auto" measures and takes the fastest."""

    token_budget: PositiveInt = 2048
    """Most tokens in one forward-backward pass; a longer row is a pass of its own."""


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Section):
    """How completions are drawn for training."""

    problems: PositiveInt = 6
    """Problems per step."""

    completions: PositiveInt = 8
    """Completions per problem: the size of a group."""

    temperature: PositiveFloat = 1.0
    """Divides the logits, while sampling and while training."""

    max_new_tokens: PositiveInt = 16
    """Longest completion in tokens, the stop token included."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section):
    """AdamW."""

    learning_rate: PositiveFloat = 1e-5
    """At the first step; constant, unless decay_steps says otherwise."""

    decay_steps: PositiveInt | Literal["off"] = "off"
    """The learning rate falls linearly, to reach 0 after so many steps; "off" for no decay."""

    clip_norm: PositiveFloat | Literal["off"] = 1.0
    """Largest gradient norm; "off" for no clipping."""

    weight_decay: NonNegativeFloat = 0.0
    """Decoupled, as a share of the learning rate."""

    beta1: Annotated[float, Range(low=0, high=0.9999)] = 0.9
    """Decay of the mean of the gradient."""

    beta2: Annotated[float, Range(low=0, high=0.999999)] = 0.999
    """Decay of the mean of its square."""

    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Section):
    """Greedy accuracy on held-out problems; always before the first and after the last step."""

    every: Count = 5
    """Also after every so many steps; 0 for only before and after."""

    problems: Count = 64
    """Held-out problems used, at most; 0 turns evaluation off."""


@dataclass(frozen=True, kw_only=True)
class VerifierConfig(Section):
    """What happens when verification fails."""

    max_failures: Fraction = 0.1
    """The run stops when a larger share of one step's verdicts failed."""

    workers: Count = 0
    """Processes that verify in parallel under the limits below; 0 verifies in the trainer's own
    process, one after another, without limits."""

    cpu_seconds: PositiveFloat = 10.0
    """Processor time that one verification in a worker may take."""

    wall_seconds: PositiveFloat = 60.0
    """Time that it may take altogether; several times cpu_seconds, so that load decides nothing."""

    memory_mb: PositiveInt = 2048
    """Memory that it may take, in megabytes."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Section):
    """Saving what a resume needs."""

    every: Count = 10
    """Save after every so many steps, and always after the last; 0 for only the last."""

    keep: PositiveInt = 2
    """How many checkpoints to keep, newest first."""


@dataclass(frozen=True, kw_only=True)
class Config(Section):
    """A whole run."""

    task: TaskConfig
    model: ModelConfig
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    run: RunConfig = field(default_factory=RunConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    verifier: VerifierConfig = field(default_factory=VerifierConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    def __post_init__(self) -> None:
        """Check each section, then what only the whole can know."""
        super().__post_init__()
        check_group_size(self)


SHORTHAND = {"task": "name", "model": "name", "algorithm": "preset"}
"""``task = "addition"`` is short for ``[task] name = "addition"``, and so on."""


def check_group_size(config: Config) -> None:
    """Refuse one completion per problem when the advantage compares completions of a problem."""
    advantage = config.algorithm.advantage or config.algorithm.preset
    alone = advantage in NEED_NO_GROUP or ":" in advantage
    if config.sampling.completions == 1 and not alone:
        raise ConfigError(
            f"sampling.completions is 1, but the advantage of {advantage!r} compares the "
            "completions of one problem with each other, so a single one never has a signal; "
            "set it to 2 or more (8 is usual)"
        )
