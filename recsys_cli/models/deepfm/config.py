"""Options of the `deepfm` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import TRAINED_IN_SMALL_STEPS, TowerOptions


class Config(TowerOptions):
    """Factorization machine plus a tower of dense layers over the same vectors (Guo et al., 2017)."""

    train_defaults: ClassVar[Mapping[str, Any]] = TRAINED_IN_SMALL_STEPS
    embedding_dim: PositiveInt = 16
    """Width of the vectors, the same for all features, because they are multiplied with each other."""
    regularization: float = Field(0.01, ge=0)
    """How much the embeddings cost (L2), as in the other ranking models; products grow without it."""
