"""Typed configuration: TOML and overrides in, one checked value out."""

from verigrad.config.algorithm import (
    ADVANTAGES,
    AGGREGATIONS,
    LOSSES,
    PRESETS,
    AlgorithmConfig,
)
from verigrad.config.loading import config_from, load_config, to_toml
from verigrad.config.schema import (
    MODELS,
    SHORTHAND,
    TASKS,
    VERIFIERS,
    CheckpointConfig,
    Config,
    EvaluationConfig,
    ModelConfig,
    OptimizerConfig,
    RunConfig,
    SamplingConfig,
    TaskConfig,
    VerifierConfig,
)

__all__ = [
    "ADVANTAGES",
    "AGGREGATIONS",
    "LOSSES",
    "MODELS",
    "PRESETS",
    "SHORTHAND",
    "TASKS",
    "VERIFIERS",
    "AlgorithmConfig",
    "CheckpointConfig",
    "Config",
    "EvaluationConfig",
    "ModelConfig",
    "OptimizerConfig",
    "RunConfig",
    "SamplingConfig",
    "TaskConfig",
    "VerifierConfig",
    "config_from",
    "load_config",
    "to_toml",
]
