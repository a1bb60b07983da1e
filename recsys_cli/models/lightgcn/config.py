"""Options of the `lightgcn` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from recsys_cli.models.retrieval.options import NegativeSamplingOptions


class Config(NegativeSamplingOptions):
    """LightGCN: vectors of users and items, smoothed over the graph of who likes what (He et al., 2020)."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "batch_size": 4096,
        "learning_rate": 0.04,
        "monitor": "ndcg@10",
    }

    embedding_dim: PositiveInt = 64
    """Width of the vectors."""
    num_layers: NonNegativeInt = 3
    """How many steps along the graph a vector is carried; 0 is matrix factorisation without biases."""
    regularization: float = Field(0.0001, ge=0)
    """How much the vectors cost that smoothing begins with: each row that is learnt from adds so many times the squared length of
    its user's, its item's and (their mean) its negatives' to the loss of training."""
    loss: Literal["bpr", "softmax"] = "bpr"
    """`bpr`: each positive should be above a drawn item, as in the paper. `softmax`: it should be chosen among many."""
