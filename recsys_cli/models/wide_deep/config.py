"""Options of the `wide-deep` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import TRAINED_IN_SMALL_STEPS, TowerOptions


class Config(TowerOptions):
    """A linear model, which learns ids and their crosses by heart, plus a tower over embeddings (Cheng et al., 2016)."""

    train_defaults: ClassVar[Mapping[str, Any]] = TRAINED_IN_SMALL_STEPS
    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the tower's embeddings: one for all, by column name, or (for columns not named, and with null) from the
    cardinality n: min(512, max(16, round(1.6 n^0.56)))."""
    wide: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Columns that the linear model looks at, such as those that a HashedCross made; all where left out."""
    deep: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Columns that the tower looks at; all where left out."""
