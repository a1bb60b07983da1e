"""Options of the `ials` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """Vectors of users and items whose products are near 1 for what users have met and, with less weight, near 0 for the rest.

    After Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets" (2008). Needs `recsys-cli[implicit]`.
    """

    train_defaults: ClassVar[dict[str, Any]] = {"monitor": "ndcg@10"}

    dim: PositiveInt = 96
    """Width of the vectors."""
    regularization: float = Field(1.0, gt=0)
    """How much the squares of the vectors cost, λ."""
    alpha: float = Field(1.0, gt=0)
    """How much more an item that a user has met counts than one that the user has not met."""
    iterations: PositiveInt = 10
    """How often all users and then all items are solved for."""
