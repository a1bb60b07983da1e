"""Options of `mlp`, without torch."""

from __future__ import annotations

from pydantic import PositiveInt

from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """MLP of the Merlin notebook: concatenated embeddings through dense layers to one logit.

    The defaults suit a hundred thousand interactions. For many millions, configs/ml25m-notebook.yaml has the notebook's
    settings: no dropout, `embedding_dim` null, batches of 32,768 rows; these overfit small data.
    """

    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
