"""Options of `item-knn`, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """ItemKNN: scores an item by its cosine similarity to the user's history, over each item's nearest neighbors.

    After Sarwar, Karypis, Konstan and Riedl, "Item-Based Collaborative Filtering Recommendation Algorithms" (2001).
    """

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.num_neighbors": {"choices": [20, 50, 100, 200, 500]},
        "model.weighting": {"choices": ["none", "tfidf", "bm25"]},
        "model.shrinkage": {"low": 1.0, "high": 1_000.0, "log": True},
    }

    num_neighbors: PositiveInt = 50
    """Number of nearest neighbors per item, without the item itself."""
    weighting: Literal["none", "tfidf", "bm25"] = "none"
    """Weights of interactions: all equal (`none`), lower for users with many items (`tfidf`), or also lower for popular items
    (`bm25`)."""
    normalize: bool = True
    """Divide co-occurrences by the norms of both items, as cosine similarity does; without it popular items are near to all."""
    shrinkage: float = Field(100.0, ge=0)
    """Shrinkage added to the product of the norms, against high similarity from few common users."""
    k1: float = Field(1.2, ge=0)
    """BM25 `k1`: range of the popularity weights; 0 gives all items the same weight."""
    b: float = Field(0.75, ge=0, le=1)
    """BM25 `b`: length normalization. 0 ignores item popularity, 1 fully down-weights interactions with popular items."""
