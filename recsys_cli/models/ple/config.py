"""Options of `ple`, without torch."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """Progressive layered extraction for several labels that may conflict (Tang et al., 2020)."""

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    num_layers: PositiveInt = 2
    """Number of extraction layers; with one, the model is CGC."""
    num_shared_experts: PositiveInt = 2
    """Number of experts per layer that all labels share."""
    num_label_experts: PositiveInt = 2
    """Number of experts per layer of each label."""
    hidden_dims: tuple[PositiveInt, ...] = Field((64,), min_length=1)
    """Widths of the dense layers of an expert."""
    tower_dims: tuple[PositiveInt, ...] = (32,)
    """Widths of the dense layers of a label's own tower."""
