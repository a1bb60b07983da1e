"""Options of ranking models, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from recsys_cli.config.section import Section
from recsys_cli.models.collaborative.config import CollaborativeOptions
from recsys_cli.models.history.config import HistoryFeature


class RankingOptions(Section):
    """Options of every ranking model."""

    search_space: ClassVar[Mapping[str, Any]] = {
        "train.learning_rate": {"low": 0.0003, "high": 0.03, "log": True},
        "model.regularization": {"low": 0.0003, "high": 0.1, "log": True},
    }

    regularization: float = Field(0.0, ge=0)
    """L2 penalty of the embeddings: each row of a batch adds this times the squared norm of its embeddings to the training loss. It
    touches only rows of the batch, so it works with `train.sparse_embeddings`."""
    label_weights: dict[str, PositiveFloat] = Field(default_factory=dict)
    """Loss weight of each label, by name; 1 for all others."""
    collaborative: CollaborativeOptions | None = None
    """Out-of-fold collaborative features, as in `lightgbm`: {} for the defaults, null for none."""
    history: HistoryFeature | None = None
    """The user's items before the time of a row as a feature, pooled by the mean: {} for the defaults, null for none."""


class TowerOptions(RankingOptions):
    """Options of every ranking model with an MLP."""

    search_space: ClassVar[Mapping[str, Any]] = {
        "train.learning_rate": {"low": 0.0003, "high": 0.01, "log": True},
        "model.dropout": {"low": 0.0, "high": 0.6, "step": 0.1},
        "model.embedding_dropout": {"low": 0.0, "high": 0.6, "step": 0.1},
    }

    # Small batches for few rows; early stopping, because the best epoch was the 4th on ml-latest-small, the 7th to 13th on ml-100k.
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.001,
        "sparse_embeddings": True,
    }

    hidden_dims: tuple[PositiveInt, ...] = (128, 128, 128)
    """Widths of the dense layers, each followed by ReLU."""
    batch_norm: bool = True
    """Apply BatchNorm after each ReLU. It normalizes the scale of the input, and `regularization`, important with few interactions,
    loses its effect."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout rate after each dense layer."""
    embedding_dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout rate of the embeddings at the MLP's input."""
