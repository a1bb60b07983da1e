"""Options of `mmoe`, without torch."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """Multi-gate mixture of experts for several labels (Ma et al., 2018)."""

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    num_experts: PositiveInt = 4
    """Number of experts, shared by all labels."""
    hidden_dims: tuple[PositiveInt, ...] = Field((128, 64), min_length=1)
    """Widths of the dense layers of an expert."""
    tower_dims: tuple[PositiveInt, ...] = (32,)
    """Widths of the dense layers of a label's own tower."""
