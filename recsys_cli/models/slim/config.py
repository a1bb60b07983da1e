"""Options of `slim`, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """SLIM: sparse, non-negative item-to-item weights by one elastic net per item.

    After Ning and Karypis, "SLIM: Sparse Linear Methods for Top-N Recommender Systems" (2011).
    """

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.l1": {"low": 0.05, "high": 20.0, "log": True},
        "model.l2": {"low": 1.0, "high": 1_000.0, "log": True},
    }

    l1: float = Field(1.0, ge=0)
    """L1 penalty λ of the weights; larger values give more zeros."""
    l2: float = Field(50.0, ge=0)
    """L2 penalty β, on half of the squared weights."""
    max_items: PositiveInt = 3_000
    """Number of items with weights, by popularity; all others score 0. Memory grows with its square, time with its cube."""
    tolerance: float = Field(1e-2, gt=0)
    """Convergence threshold: largest change of a weight in one sweep of coordinate descent."""
    max_sweeps: PositiveInt = 100
    """Maximum sweeps of coordinate descent per item."""
