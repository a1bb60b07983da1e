"""Options of the `lightgcn` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from recsys_cli.models.retrieval.options import Comparing


class Config(Comparing):
    """LightGCN: vectors of users and items, smoothed over the graph of who likes what (He et al., 2020)."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "batch_size": 4096,
        "learning_rate": 0.01,
        "monitor": "ndcg@10",
    }

    dim: PositiveInt = 64
    """Width of the vectors."""
    layers: NonNegativeInt = 3
    """How many steps along the graph a vector is carried; 0 is matrix factorisation without biases."""
    loss: Literal["bpr", "softmax"] = "bpr"
    """`bpr`: each positive should be above a drawn item, as in the paper. `softmax`: it should be chosen among many."""
