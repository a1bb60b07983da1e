"""Options of the `dlrm` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import RankingOptions


class Config(RankingOptions):
    """Dot products of all pairs of embeddings, and of the numbers as one more, into a tower (Naumov et al., 2019).

    Beside it stands a linear model, which the paper has not.
    """

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 1024,
        "learning_rate": 0.001,
        "embedding_learning_rate": 0.003,
        "sparse_embeddings": True,
    }
    embedding_dim: PositiveInt = 16
    """Width of the embeddings, the same for all features, because they are multiplied with each other."""
    bottom_mlp: tuple[PositiveInt, ...] = (64,)
    """Widths of the dense layers that lead from the numbers to a vector as wide as the embeddings; each has ReLU and BatchNorm."""
    regularization: float = Field(0.007, ge=0)
    """How much the embeddings cost (L2), as in the other ranking models; dot products grow without it, and with 0.02 the embeddings
    of a hundred thousand interactions stay at zero."""
    top_mlp: tuple[PositiveInt, ...] = (64,)
    """Widths of the top tower's dense layers, each followed by ReLU."""
    batch_norm: bool = False
    """Whether BatchNorm follows each ReLU of the top tower. It takes the scale out of the dot products, so that `regularization`
    keeps nothing small: on a hundred thousand interactions AUC then falls from the third epoch on, by 0.04 in three more."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout after each dense layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout of the embeddings; it makes dot products small, which costs more than it brings."""
