"""Options of the `fm` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import RankingOptions


class Config(RankingOptions):
    """Factorization machine: what each feature adds by itself, and a dot product for each pair of features (Rendle, 2010)."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.003,
        "sparse_embeddings": True,
    }
    embedding_dim: PositiveInt = 16
    """Width of the vectors, the same for all features, because they are multiplied with each other."""
    regularization: float = Field(0.01, ge=0)
    """How much weights and vectors cost: each row of a batch adds so many times the sum of the squares of what it looks up to the
    loss of training. Pairs of few interactions need it; 0.01 is for a hundred thousand of them."""
