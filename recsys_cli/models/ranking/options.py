"""Options that several ranking models have, written once. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt

from recsys_cli.config.section import Section
from recsys_cli.models.collaborative.config import CollaborativeOptions

TRAINED_IN_SMALL_STEPS: Mapping[str, Any] = {
    "epochs": 20,
    "early_stopping": 3,
    "batch_size": 1024,
    "learning_rate": 0.001,
    "sparse_embeddings": True,
}
"""Training defaults of models with a tower: small steps for few rows, and early stopping, because the best epoch was the 4th on
ml-latest-small and the 7th to 13th on ml-100k."""


class RankingOptions(Section):
    """What every ranking model is asked."""

    regularization: float = Field(0.0, ge=0)
    """How much the embeddings cost (L2): each row of a batch adds so many times the sum of the squares of what it looks up to the
    loss of training. It touches only rows of the batch, so it goes with `train.sparse_embeddings`."""
    label_weights: dict[str, PositiveFloat] = Field(default_factory=dict)
    """How much the loss of each label counts, by name, where there are several; 1 where a label is not named."""
    collaborative: CollaborativeOptions | None = None
    """Out-of-fold collaborative features beside the plan's, as `lightgbm` has them: {} for the defaults, null for none."""


class TowerOptions(RankingOptions):
    """What every ranking model with a tower of dense layers is asked."""

    hidden_dims: tuple[PositiveInt, ...] = (128, 128, 128)
    """Widths of the dense layers, each followed by ReLU."""
    batch_norm: bool = True
    """Whether BatchNorm follows each ReLU. It takes the scale out of what goes in, and with it the use of a `regularization` that
    keeps embeddings small, which few interactions need."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout after each dense layer."""
    embedding_dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout of the embeddings that go into the tower."""
