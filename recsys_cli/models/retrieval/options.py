"""Options of negative sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.config.section import Section


class NegativeSamplingOptions(Section):
    """Options of retrieval models with sampled negatives."""

    search_space: ClassVar[Mapping[str, Any]] = {
        "train.learning_rate": {"low": 0.005, "high": 0.5, "log": True},
        "model.embedding_dim": {"choices": [32, 64, 128]},
        "model.regularization": {"low": 1e-5, "high": 0.2, "log": True},
    }

    num_negatives: PositiveInt | None = None
    """Uniformly sampled negatives per positive: `bpr` averages over them, `warp` tries them in turn, and for `softmax` all rows of
    a batch share them. None: 1 for bpr, 20 for warp, 512 for softmax."""
    filter_false_negatives: bool = True
    """Reject false negatives, the user's positives in train; `softmax` masks them in the sum."""
    regularization: float | None = Field(None, ge=0)
    """L2 penalty: each positive adds this times the squared norms of its user, its item and the mean of its negatives to the
    training loss. None: 0.002 for bpr, 0.05 for warp and softmax."""
