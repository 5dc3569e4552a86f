"""The configuration: one frozen dataclass per TOML section, checked when it is made.

A field's type, range and docstring are all there is to know about a key. Nothing is derived in
secret: two keys never change each other.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from verigrad.config.algorithm import NEED_NO_GROUP, AlgorithmConfig
from verigrad.config.checks import Range
from verigrad.config.data import DataConfig
from verigrad.config.fields import (
    Count,
    DeviceText,
    Fraction,
    LineText,
    Megabytes,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Seconds,
    Section,
    SizeText,
    Threads,
    Workers,
)
from verigrad.errors import ConfigError

TASKS = (
    "addition",
    "arithmetic",
    "countdown",
    "sorting",
    "strings",
    "json",
    "functions",
    "toy",
)
"""The built-in tasks; anything else is data, or ``file.py:name``."""

MIXTURE = "mixture"
"""The task that draws from several, which ``task.mixture`` lists."""

REASONING_GYM = "reasoning_gym:"
"""Begins the name of a task that is a dataset of reasoning-gym."""

MODELS = ("smollm2-135m", "tabular")
"""The model aliases; anything else is a folder or a hub id ``owner/name``."""


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Section):
    """What is trained on."""

    name: LineText
    """A built-in name, ``file.py:name`` for a task of your own, ``reasoning_gym:NAME`` for a
    dataset of reasoning-gym, "mixture", or data, which [data] describes: a file, a folder that
    Hugging Face datasets saved, or a hub id ``owner/name``."""

    difficulty: PositiveInt | None = None
    """How hard the problems of a built-in task are; `verigrad tasks` lists each task's range."""

    mixture: tuple[LineText, ...] = ()
    """The tasks of a mixture, each with its weight before it and perhaps a difficulty after it:
    ["2 addition", "1 countdown@3"]."""

    held_out: Annotated[float, Range(low=0, high=0.9)] = 0.2
    """Share of the problems kept for evaluation, chosen by a stable hash of their content."""

    order: Literal["shuffled", "file"] = "shuffled"
    """In which order problems are drawn: anew in each epoch by the seed, or as they stand."""

    epochs: PositiveInt | None = None
    """At most so often is each problem drawn; a run whose steps draw more is refused."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """What is trained."""

    name: LineText
    """An alias, a folder, a hub id ``owner/name``, or "tabular"."""

    activation_checkpointing: bool = False
    """Whether layers compute their activations again in the backward pass: the same bits in less
    memory and a third more time, for long completions."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """What the layers compute in; weights, gradients, the optimizer and the vocabulary head are
    float32 always. "auto" is bfloat16 on a GPU and float32 on a CPU."""

    def __post_init__(self) -> None:
        """Refuse a table with layers.

        Raises:
            ConfigError: it is to run layers again, or in bfloat16, of which it has none.
        """
        super().__post_init__()
        if self.name == "tabular" and self.activation_checkpointing:
            raise ConfigError(
                'model = "tabular" has no layers whose activations could be computed again; '
                "remove model.activation_checkpointing"
            )
        if self.name == "tabular" and self.precision == "bfloat16":
            raise ConfigError(
                'model = "tabular" has no layers that could compute in bfloat16; remove '
                "model.precision"
            )


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

    threads: Threads | Literal["auto"] = "auto"
    """CPU threads; "auto" measures and takes the fastest."""

    token_budget: PositiveInt | Literal["auto"] = "auto"
    """Most tokens in one forward-backward pass; a longer row is a pass of its own. "auto" takes the
    largest group, within bounds, or less where memory has no room for it."""

    memory_limit: PositiveInt | SizeText = "auto"
    """Memory that a language model's run may take where the model lives: bytes, or "6 GB"; "auto"
    is 80 % of what the machine, the container or the GPU has. Passes get smaller before it is
    reached."""


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

    rows_at_once: PositiveInt = 256
    """Most completions generated side by side; when some end, those of the next problem begin.
    Those of one problem start together, even where they are more."""


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

    max_bad_updates: PositiveInt = 3
    """An update whose loss or gradient is not finite is skipped; the run stops after so many in a
    row."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Section):
    """Greedy accuracy on held-out problems; always before the first and after the last step."""

    every: Count = 5
    """Also after every so many steps; 0 for only before and after."""

    problems: Count = 64
    """Held-out problems used, at most; 0 turns evaluation off."""


@dataclass(frozen=True, kw_only=True)
class VerifierConfig(Section):
    """How completions are verified, and what happens when that fails."""

    max_failures: Fraction = 0.1
    """The run stops when a larger share of one step's verdicts failed."""

    name: LineText | None = None
    """A verifier in the place of the task's own: ``file.py:function``, or a built-in name."""

    check: Literal["on", "off"] = "on"
    """Try the verifier before the first step: a reference without full marks refuses the run, and a
    shortcut that is paid is a warning."""

    workers: Workers | Literal["auto"] = "auto"
    """Processes that verify in parallel under the limits below; 0 verifies in the trainer's own
    process, one after another, without limits; "auto" has one per CPU, at most eight, and none for
    a verifier that is bounded."""

    sandbox: Literal["auto", "namespaces", "bubblewrap", "sandlock", "wasi", "subprocess"] = "auto"
    """What keeps in the programs that a model wrote, at the least; "auto" is the strongest that
    works, and never "subprocess", which stops accidents only."""

    cpu_seconds: Seconds = 10.0
    """Processor time that one verification in a worker may take."""

    wall_seconds: Seconds = 60.0
    """Time that it may take altogether; several times cpu_seconds, so that load decides nothing."""

    memory_mb: Megabytes = 2048
    """Memory that it may take, in megabytes."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Section):
    """Saving what a resume needs."""

    every: Count = 10
    """Save after every so many steps, and always after the last; 0 for only the last."""

    keep: PositiveInt = 2
    """How many checkpoints to keep, newest first."""

    best: bool = True
    """Keep the one with the best held-out accuracy too, among those whose step was evaluated."""


@dataclass(frozen=True, kw_only=True)
class Config(Section):
    """A whole run."""

    task: TaskConfig
    model: ModelConfig
    data: DataConfig = field(default_factory=DataConfig)
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
        check_mixture(self.task)


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


def check_mixture(task: TaskConfig) -> None:
    """Refuse a mixture of nothing, and parts or a difficulty where they say nothing."""
    if task.name == MIXTURE and not task.mixture:
        raise ConfigError(
            'task.name is "mixture", but task.mixture lists no task; write the parts with their '
            'weights: mixture = ["2 addition", "1 countdown"]'
        )
    if task.name != MIXTURE and task.mixture:
        raise ConfigError(
            f'task.mixture lists tasks, but task.name is {task.name!r}; make it "mixture", or '
            "leave task.mixture out"
        )
    if task.name == MIXTURE and task.difficulty is not None:
        raise ConfigError(
            "task.difficulty is set, but each part of a mixture has its own; write it behind the "
            f'name: "1 countdown@{task.difficulty}"'
        )
