"""Options of `two-tower`, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from recsys_cli.config.section import Section


class Config(Section):
    """Two-tower model: one network per side over user and item features, scored by the dot product of their outputs."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.003,
        "monitor": "ndcg@10",
    }

    search_space: ClassVar[Mapping[str, Any]] = {
        "train.learning_rate": {"low": 0.0005, "high": 0.02, "log": True},
        "model.temperature": {"low": 0.05, "high": 0.3, "log": True},
        "model.embedding_dropout": {"low": 0.0, "high": 0.5, "step": 0.1},
    }

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 64
    """Width of the embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    hidden_dims: tuple[PositiveInt, ...] = ()
    """Widths of the hidden layers of each tower, each followed by ReLU and BatchNorm."""
    output_dim: PositiveInt = 64
    """Width of the towers' output vectors."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate after each hidden layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate of the concatenated embeddings."""
    temperature: PositiveFloat = 0.1
    """Softmax temperature: divides the cosine similarity of user and item."""
    num_negatives: NonNegativeInt = 512
    """Uniformly sampled negatives per batch, in addition to the in-batch negatives. They cover items that are rarely positive;
    0 for in-batch negatives only."""
    log_q: bool = True
    """Subtract the log sampling probability of each item from its logit, the correction for popularity bias of in-batch
    negatives."""
    filter_false_negatives: bool = False
    """Exclude false negatives from the loss: other items with a positive of the row's user in train."""
