"""Options of `din`, without torch."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from recsys_cli.models.history.config import HistoryFeature
from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """Deep Interest Network: an MLP over the features and the history, weighted by attention to the item (Zhou et al., 2018)."""

    history: HistoryFeature = HistoryFeature()
    """The user's items before the time of a row."""
    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    attention_dims: tuple[PositiveInt, ...] = Field((36,), min_length=1)
    """Widths of the dense layers of the activation unit."""
