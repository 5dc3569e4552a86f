"""Typed configuration: TOML and overrides in, one checked value out."""

from verigrad.config.algorithm import (
    ADVANTAGES,
    AGGREGATIONS,
    LOSSES,
    PRESETS,
    AlgorithmConfig,
)
from verigrad.config.data import DATA_SUFFIXES, VERIFIERS, DataConfig
from verigrad.config.loading import config_from, load_config, to_toml
from verigrad.config.schema import (
    MODELS,
    SHORTHAND,
    TASKS,
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
    "DATA_SUFFIXES",
    "LOSSES",
    "MODELS",
    "PRESETS",
    "SHORTHAND",
    "TASKS",
    "VERIFIERS",
    "AlgorithmConfig",
    "CheckpointConfig",
    "Config",
    "DataConfig",
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
