"""Options of `deepfm`, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """DeepFM: a factorization machine plus an MLP over the same embeddings (Guo et al., 2017)."""

    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.0003,
        "embedding_learning_rate": 0.003,
        "sparse_embeddings": True,
    }
    embedding_dim: PositiveInt = 16
    """Width of the embeddings, equal for all features, because the factorization machine multiplies them."""
    regularization: float = Field(0.015, ge=0)
    """L2 penalty of the embeddings, as in the other ranking models; their products overfit without it."""
    hidden_dims: tuple[PositiveInt, ...] = (64,)
    """Widths of the MLP's layers, each followed by ReLU; small ones suffice next to the factorization machine."""
    batch_norm: bool = False
    """Apply BatchNorm after each ReLU. It normalizes the scale of the embeddings, and `regularization` loses its effect."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout rate after each dense layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate of the embeddings at the MLP's input; the factorization machine reads them in full."""
