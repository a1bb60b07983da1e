"""Options of the `ials` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """Matrix factorization by alternating least squares: 1 for interactions, 0 with less weight for all other pairs.

    After Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets" (2008). Needs `recsys-cli[implicit]`.
    """

    train_defaults: ClassVar[dict[str, Any]] = {"monitor": "ndcg@10"}

    embedding_dim: PositiveInt = 64
    """Width of the vectors."""
    regularization: float | None = Field(None, gt=0)
    """L2 penalty of the vectors, λ. None: 0.04 of the confidence in a user's and in an item's interactions, the geometric mean of
    both sums, each averaged over interactions."""
    alpha: float = Field(4.0, gt=0)
    """Confidence in an interaction, c = 1 + alpha r, against 1 for items without one. r is the number of rows of the user and the
    item, or where the label is a number the sum of their labels."""
    iterations: PositiveInt = 10
    """How often all users and then all items are solved for."""
