"""Options of `lightgcn`, without torch."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from recsys_cli.models.retrieval.options import NegativeSamplingOptions


class Config(NegativeSamplingOptions):
    """LightGCN: user and item embeddings propagated over the graph of positive interactions (He et al., 2020)."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 5,
        "batch_size": 4096,
        "learning_rate": 0.04,
        "monitor": "ndcg@10",
    }

    embedding_dim: PositiveInt = 64
    """Width of the embeddings."""
    num_layers: int = Field(3, ge=0, le=100)
    """Number of propagation layers; 0 is matrix factorization without biases."""
    regularization: float = Field(0.0001, ge=0)
    """L2 penalty of the embeddings before propagation: each positive adds this times the squared norms of its user, its item and
    the mean of its negatives to the training loss."""
    loss: Literal["bpr", "softmax"] = "bpr"
    """`bpr`: a positive against one sampled negative, as in the paper. `softmax`: a positive against many."""
