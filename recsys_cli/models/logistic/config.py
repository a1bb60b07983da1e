"""Options of `logistic`, without torch."""

from __future__ import annotations

from typing import Any, ClassVar

from recsys_cli.models.ranking.options import RankingOptions


class Config(RankingOptions):
    """Logistic regression: an intercept plus one weight per feature value.

    It captures item popularity and user bias, without personalization: a baseline for the other ranking models.
    """

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.01,
        "sparse_embeddings": True,
    }
