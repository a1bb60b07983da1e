"""Options of the `mlp` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt


class Config(BaseModel):
    """The network of the Merlin notebook: embeddings, concatenated, through dense layers to one logit."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = None
    """Width of the embeddings: one for all, by column name, or (for columns not named, and where left out) from the
    cardinality n: min(512, max(16, round(1.6 n^0.56)))."""
    hidden: tuple[PositiveInt, ...] = (128, 128, 128)
    """Widths of the dense layers, each followed by ReLU and BatchNorm."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout after each dense layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout of the concatenated embeddings."""
    label_weights: dict[str, PositiveFloat] = {}
    """How much the loss of each label counts, by name, where there are several; 1 where a label is not named."""
