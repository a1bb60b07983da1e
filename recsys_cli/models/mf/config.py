"""Options of the `mf` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from recsys_cli.models.retrieval.options import NegativeSamplingOptions


class Config(NegativeSamplingOptions):
    """Matrix factorisation that learns to rank: a vector for each user and item, and a bias for each item."""

    # Row-wise Adagrad, because Adam moves rare items, which are hardly more than drawn, as far as all others.
    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 3,
        "batch_size": 2048,
        "learning_rate": 0.1,
        "sparse_embeddings": True,
        "embedding_optimizer": "adagrad",
        "monitor": "ndcg@10",
    }

    embedding_dim: PositiveInt = 64
    """Width of the vectors; the bias comes on top."""
    loss: Literal["bpr", "warp", "softmax"] = "softmax"
    """`softmax`: each positive should be chosen among many drawn items. `bpr`: it should be above a drawn item (Rendle et al.,
    2009). `warp`: the same, with more weight on positives far down the ranking (Weston et al., 2011). How a model is trained
    where train says nothing is meant for softmax; it does for warp, and bpr takes two or three times as many epochs."""
