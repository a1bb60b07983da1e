"""Options of `bst`, without torch."""

from __future__ import annotations

from typing import Self

from pydantic import Field, PositiveInt, model_validator

from recsys_cli.models.history.config import HistoryFeature
from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """Behavior Sequence Transformer: an MLP over the features and a transformer of history and item (Chen et al., 2019)."""

    history: HistoryFeature = HistoryFeature(max_seq_len=20)
    """The user's items before the time of a row."""
    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    hidden_size: PositiveInt = 32
    """Width of the transformer."""
    num_layers: PositiveInt = 1
    """Number of transformer layers."""
    num_heads: PositiveInt = 4
    """Number of attention heads."""
    attention_dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout rate of the outputs of attention and feed-forward network."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden_size % self.num_heads:
            raise ValueError(f"hidden_size {self.hidden_size} has to be a multiple of num_heads {self.num_heads}")
        return self
