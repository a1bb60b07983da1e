"""Options of `wide-deep`, without torch."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveInt, field_validator

from recsys_cli.config.section import require_distinct
from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """Wide & Deep: a linear model memorizes ids and feature crosses, plus an MLP over embeddings (Cheng et al., 2016)."""

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the MLP's embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    wide: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Columns of the linear model, such as the output of HashedCross. None for all."""
    deep: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Columns of the MLP. None for all."""

    _are_distinct = field_validator("wide", "deep")(require_distinct)
