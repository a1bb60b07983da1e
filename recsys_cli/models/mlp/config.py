"""Options of the `mlp` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """The network of the Merlin notebook: embeddings, concatenated, through dense layers to one logit."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout after each dense layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout of the concatenated embeddings."""
    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = None
    """Width of the embeddings: one for all, by column name, or (for columns not named, and where left out) from the
    cardinality n: min(512, max(16, round(1.6 n^0.56)))."""
