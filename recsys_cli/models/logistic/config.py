"""Options of the `logistic` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from recsys_cli.models.ranking.options import RankingOptions


class Config(RankingOptions):
    """Logistic regression: a bias, and what each feature adds by itself.

    It learns how good an item is and how generous a user, and nothing of who likes what: what other models have to beat.
    """

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.01,
        "sparse_embeddings": True,
    }
