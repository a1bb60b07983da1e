"""Options of the `neumf` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import TRAINED_IN_SMALL_STEPS, TowerOptions


class Config(TowerOptions):
    """Neural matrix factorization: products of user and item vectors, plus a tower with vectors of its own (He et al., 2017).

    Trained on labels, negative ones included; for implicit feedback the op NegativeSampling draws them.
    """

    train_defaults: ClassVar[Mapping[str, Any]] = TRAINED_IN_SMALL_STEPS
    mf_dim: PositiveInt = 16
    """Width of the user and item vectors that are multiplied with each other."""
    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the tower's embeddings: one for all, by column name, or (for columns not named, and with null) from the
    cardinality n: min(512, max(16, round(1.6 n^0.56)))."""
    content: bool = True
    """Whether the tower looks at all features; false is the paper's model, which knows the ids of user and item alone."""
    regularization: float = Field(0.01, ge=0)
    """How much the embeddings cost (L2), as in the other ranking models; products grow without it."""
