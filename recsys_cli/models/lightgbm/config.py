"""Options of the `lightgbm` model, without a torch import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from recsys_cli.models.collaborative.config import CollaborativeOptions


class Config(CollaborativeOptions):
    """LightGBM: gradient-boosted trees on the plan's features and out-of-fold collaborative features, a strong tabular baseline.

    Every label gives collaborative features, and the trees predict the first label. A graded second label, such as the rating
    scaled to [0, 1], carries more signal than a binary one.
    """

    format: ClassVar[int] = 3

    search_space: ClassVar[Mapping[str, Any]] = {
        "model.learning_rate": {"low": 0.01, "high": 0.2, "log": True},
        "model.num_leaves": {"low": 8, "high": 128, "log": True},
        "model.min_data_in_leaf": {"low": 10, "high": 500, "log": True},
        "model.feature_fraction": {"low": 0.3, "high": 1.0},
    }

    num_trees: PositiveInt = 300
    """Number of trees, one per boosting round."""
    learning_rate: PositiveFloat = 0.05
    """Shrinkage of each tree's output."""
    num_leaves: int = Field(24, ge=2)
    """Maximum leaves per tree."""
    min_data_in_leaf: PositiveInt = 50
    """Minimum rows per leaf."""
    lambda_l2: NonNegativeFloat = 5.0
    """L2 penalty of the leaf values."""
    feature_fraction: float = Field(0.5, gt=0, le=1)
    """Share of features sampled for each tree."""
    bagging_fraction: float = Field(0.8, gt=0, le=1)
    """Share of rows sampled for each tree."""
