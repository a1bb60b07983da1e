"""Options of the `deepfm` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """Factorization machine plus a tower of dense layers over the same vectors (Guo et al., 2017)."""

    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.0003,
        "embedding_learning_rate": 0.003,
        "sparse_embeddings": True,
    }
    embedding_dim: PositiveInt = 16
    """Width of the vectors, the same for all features, because they are multiplied with each other."""
    regularization: float = Field(0.015, ge=0)
    """How much the embeddings cost (L2), as in the other ranking models; products grow without it."""
    hidden_dims: tuple[PositiveInt, ...] = (64,)
    """Widths of the dense layers, each followed by ReLU; they add to what the factorization machine tells, so they may be few."""
    batch_norm: bool = False
    """Whether BatchNorm follows each ReLU. It takes the scale out of the vectors, and with it the use of their `regularization`."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout after each dense layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout of the vectors that go into the tower; the factorization machine takes them whole."""
