"""Options of `ials`, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, PositiveInt

from recsys_cli.models.options import HistoryOptions


class Config(HistoryOptions):
    """iALS: implicit-feedback matrix factorization by alternating least squares, confidence-weighted.

    After Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets" (2008). Needs `recsys-cli[implicit]`.
    """

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.embedding_dim": {"choices": [32, 64, 128, 256]},
        "model.alpha": {"low": 0.5, "high": 200.0, "log": True},
        "model.regularization": {"low": 1.0, "high": 200.0, "log": True},
    }

    format: ClassVar[int] = 2

    embedding_dim: PositiveInt = 128
    """Width of the user and item factors."""
    regularization: float | None = Field(None, gt=0)
    """L2 penalty λ of the factors. None: the square root of the geometric mean of the summed confidence per user and per item,
    each averaged over interactions."""
    alpha: float | None = Field(None, gt=0)
    """Confidence c = 1 + alpha r of an interaction, against 1 for all other pairs. r is the number of rows of the pair, or the sum
    of their labels where the label is numeric. None: the root of the number of pairs per interaction, at most 100, in units of the
    mean r: more for sparser data."""
    iterations: PositiveInt = 10
    """Number of alternations, each over all users and then all items."""
