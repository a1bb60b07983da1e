"""The config: one YAML file, validated and frozen. `load` reads it; the section types say what may be in it."""

from __future__ import annotations

from recsys_cli.config.load import dump, load
from recsys_cli.config.sections import (
    HOW,
    DatasetConfig,
    EtlConfig,
    EvaluateConfig,
    ModelConfig,
    Placement,
    RunConfig,
)
from recsys_cli.config.train import TrainConfig

__all__ = [
    "HOW", "DatasetConfig", "EtlConfig", "EvaluateConfig", "ModelConfig", "Placement", "RunConfig", "TrainConfig", "dump", "load",
]  # fmt: skip
