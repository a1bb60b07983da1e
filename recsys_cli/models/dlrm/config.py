"""Options of `dlrm`, without torch."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.ranking.options import RankingOptions


class Config(RankingOptions):
    """DLRM: dot products of all pairs of embeddings and of a vector of the numeric features, then an MLP (Naumov et al., 2019).

    A linear model is added to the logit, unlike in the paper.
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
    """Width of the embeddings, equal for all features, because they enter dot products."""
    bottom_mlp: tuple[PositiveInt, ...] = (64,)
    """Widths of the MLP from the numeric features to a vector of `embedding_dim`; each layer has ReLU and BatchNorm."""
    regularization: float = Field(0.007, ge=0)
    """L2 penalty of the embeddings, as in the other ranking models. Dot products overfit without it; at 0.02 the embeddings of
    a hundred thousand interactions stay at zero."""
    top_mlp: tuple[PositiveInt, ...] = (64,)
    """Widths of the top MLP's layers, each followed by ReLU."""
    batch_norm: bool = False
    """Apply BatchNorm after each ReLU of the top MLP. It normalizes the scale of the dot products, so `regularization` loses its
    effect: on a hundred thousand interactions AUC falls from the third epoch on, by 0.04 in three more."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout rate after each dense layer."""
    embedding_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate of the embeddings; it shrinks the dot products, a net loss."""
