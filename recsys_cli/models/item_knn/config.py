"""Options of the `item-knn` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """Items are near if the same users have met them; one scores by those of its nearest items that the user has met.

    After Sarwar, Karypis, Konstan and Riedl, "Item-Based Collaborative Filtering Recommendation Algorithms" (2001).
    """

    train_defaults: ClassVar[dict[str, Any]] = {"monitor": "ndcg@10"}

    num_neighbors: PositiveInt = 50
    """How many of the nearest items of an item count, itself left out."""
    weighting: Literal["none", "tfidf", "bm25"] = "none"
    """How much a user's having met an item counts: the same for all, or less the more items a user has met, as a frequent word
    says little about a text; with bm25 also less the more users have met the item."""
    normalize: bool = True
    """Whether products are divided by the lengths of both items, which is the cosine; without it popular items are near to all."""
    shrinkage: float = Field(100.0, ge=0)
    """What is added to the product of the lengths before the division, so that few common users do not make items near."""
    k1: float = Field(1.2, ge=0)
    """Of bm25: how far weights may differ by the popularity of an item, which `b` measures; with 0 they do not."""
    b: float = Field(0.75, ge=0, le=1)
    """Of bm25: how much less a user of an item that many have met counts."""
