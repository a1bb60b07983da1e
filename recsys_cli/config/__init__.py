"""The config: one YAML file, validated and frozen. `load` reads it; the section types define its keys."""

from __future__ import annotations

from recsys_cli.config.bench import BenchConfig, BenchModel
from recsys_cli.config.load import dump, from_values, load, vary, with_model
from recsys_cli.config.sections import (
    EXECUTION_KEYS,
    DatasetConfig,
    EtlConfig,
    EvaluateConfig,
    ModelConfig,
    Placement,
    RunConfig,
)
from recsys_cli.config.train import Recent, TrainConfig
from recsys_cli.config.tune import TuneConfig
from recsys_cli.config.update import UpdateConfig

__all__ = [
    "EXECUTION_KEYS", "BenchConfig", "BenchModel", "DatasetConfig", "EtlConfig", "EvaluateConfig", "ModelConfig", "Placement",
    "Recent", "RunConfig", "TrainConfig", "TuneConfig", "UpdateConfig", "dump", "from_values", "load", "vary", "with_model",
]  # fmt: skip
