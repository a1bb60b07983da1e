"""Options of the `mf` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from recsys_cli.models.retrieval.options import Comparing


class Config(Comparing):
    """Matrix factorisation that learns to rank: a vector for each user and item, and a bias for each item."""

    train_defaults: ClassVar[dict[str, Any]] = {
        "epochs": 30,
        "batch_size": 4096,
        "learning_rate": 0.005,
        "monitor": "ndcg@10",
    }

    dim: PositiveInt = 64
    """Width of the vectors; the bias comes on top."""
    loss: Literal["bpr", "warp", "softmax"] = "bpr"
    """`bpr`: each positive should be above a drawn item (Rendle et al., 2009). `warp`: the same, with more weight on positives
    far down the ranking (Weston et al., 2011). `softmax`: the positive should be chosen among many drawn items; train
    it with train.sparse=true, train.embedding_optimizer=adagrad and train.learning_rate=0.1, because Adam moves rare items, which
    are hardly more than drawn, as far as all others."""
