"""Options of the `slim` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """Weights between items, none of them negative and most of them 0, by an elastic net for each item.

    After Ning and Karypis, "SLIM: Sparse Linear Methods for Top-N Recommender Systems" (2011).
    """

    train_defaults: ClassVar[dict[str, Any]] = {"monitor": "ndcg@10"}

    l1: float = Field(1.0, ge=0)
    """How much the weights cost, λ: the larger, the more of them are 0."""
    l2: float = Field(50.0, ge=0)
    """How much half of their squares cost, β."""
    max_items: PositiveInt = 3_000
    """How many items have weights, the ones that most users have met; the others score 0. Memory grows with its square, and time
    with its cube."""
    tolerance: float = Field(1e-2, gt=0)
    """A column of weights is done when no weight changes by more in a sweep."""
    max_sweeps: PositiveInt = 100
    """How often each weight is changed at most."""
