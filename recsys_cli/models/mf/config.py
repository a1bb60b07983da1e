"""Options of `mf`, without torch."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from recsys_cli.models.retrieval.options import NegativeSamplingOptions


class Config(NegativeSamplingOptions):
    """Matrix factorization with a ranking loss: user and item embeddings, and item biases."""

    # Row-wise Adagrad: Adam moves rare items, with hardly a gradient beyond sampled negatives, as far as all others.
    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 20,
        "early_stopping": 5,  # on MovieLens latest-small valid is level for four epochs and then rises
        "batch_size": 2048,
        "learning_rate": 0.1,
        "sparse_embeddings": True,
        "embedding_optimizer": "adagrad",
        "monitor": "ndcg@10",
    }

    embedding_dim: PositiveInt = 64
    """Width of the embeddings, without the bias."""
    loss: Literal["bpr", "warp", "softmax"] = "softmax"
    """`softmax`: a positive against many sampled negatives. `bpr`: against one (Rendle et al., 2009). `warp`: against one, with a
    higher weight for positives at low ranks (Weston et al., 2011). The default training options suit softmax and warp; bpr takes
    two or three times as many epochs."""
