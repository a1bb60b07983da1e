"""Options of `neumf`, without torch."""

from __future__ import annotations

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import TowerOptions


class Config(TowerOptions):
    """NeuMF: elementwise product of user and item embeddings, plus an MLP with embeddings of its own (He et al., 2017).

    Trains on positive and negative labels; for implicit feedback the op NegativeSampling adds negatives.
    """

    mf_dim: PositiveInt = 16
    """Width of the user and item embeddings of the product."""
    embedding_dim: PositiveInt | dict[str, PositiveInt] | None = 32
    """Width of the MLP's embeddings: one for all, or by column name. Columns without one, and null, take it from the cardinality n:
    min(512, max(16, round(1.6 n^0.56)))."""
    content: bool = True
    """Feed all features to the MLP; false gives the paper's model, with user and item ids only."""
    regularization: float = Field(0.01, ge=0)
    """L2 penalty of the embeddings, as in the other ranking models; their products overfit without it."""
