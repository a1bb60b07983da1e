"""Options of the `lightgbm` model. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from recsys_cli.models.collaborative.config import CollaborativeOptions


class Config(CollaborativeOptions):
    """Gradient-boosted trees on the plan's features and on out-of-fold collaborative features: the strong tabular baseline.

    The collaborative features (biases, factors, tastes) are learnt for every label, and the trees predict the first: a graded label
    beside it, such as the rating as a share of the best one, tells them more than a plain yes or no.
    """

    format: ClassVar[int] = 2

    num_trees: PositiveInt = 300
    """Trees; each is a round of boosting."""
    learning_rate: PositiveFloat = 0.05
    """How much of each tree is added."""
    num_leaves: int = Field(24, ge=2)
    """Leaves of a tree at most."""
    min_data_in_leaf: PositiveInt = 50
    """Rows of a leaf at least."""
    lambda_l2: NonNegativeFloat = 5.0
    """L2 penalty of the leaves' values."""
    feature_fraction: float = Field(0.5, gt=0, le=1)
    """Share of the features that a tree may look at, drawn for each."""
    bagging_fraction: float = Field(0.8, gt=0, le=1)
    """Share of the rows that a tree is grown on, drawn for each."""
