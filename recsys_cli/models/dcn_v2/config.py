"""Options of `dcn-v2`, without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """DCN-V2: cross layers over all features, followed by or parallel to an MLP (Wang et al., 2021)."""

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    num_cross_layers: PositiveInt = 2
    """Number of cross layers; L layers give feature products up to degree L + 1."""
    rank: PositiveInt | None = None
    """Rank of the low-rank cross matrices. A quarter of the input width is often enough, at half the cost. None for full
    matrices."""
    structure: Literal["stacked", "parallel"] = "stacked"
    """`stacked`: the MLP reads the output of the cross layers. `parallel`: it reads the features, and both logits are added."""
