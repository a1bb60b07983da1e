"""Options of `fm`, without torch."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import RankingOptions


class Config(RankingOptions):
    """Factorization machine: a linear model plus the dot products of all feature pairs (Rendle, 2010)."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.003,
        "sparse_embeddings": True,
    }
    embedding_dim: PositiveInt = 16
    """Width of the embeddings, equal for all features, because they enter dot products."""
    regularization: float = Field(0.01, ge=0)
    """L2 penalty of weights and embeddings: each row of a batch adds this times the squared norm of its embeddings to the training
    loss. Sparse feature pairs need it; 0.01 suits a hundred thousand interactions."""
