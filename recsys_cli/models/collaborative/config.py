"""Options of collaborative features, without a torch import."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from recsys_cli.config.section import Section


class CollaborativeOptions(Section):
    """Collaborative features: biases, factors, regressions and content profiles of users and items, out of fold for every label."""

    # Chosen on a held-out tenth of the train rows of MovieLens latest-small, with the rating as a second label: AUC 0.8332.
    # Positions: 0.8321 with 16, 0.8256 with none; 48 factors with 16 positions 0.8328 in twice the time. Earlier, without
    # positions and with 48 factors: 0.8266, and 0.8189 without the rating; 0.8272 with ten folds; 32 factors with a penalty of
    # 8 or 32: 0.8231 or 0.8218. num_leaves and min_data_in_leaf: within 0.0005. num_trees: flat from 150 on.

    folds: int = Field(5, ge=2, le=100)
    """Number of folds: the features of a train row come from the statistics of the other folds."""
    embedding_dim: PositiveInt = 16
    """Width of the user and item factors."""
    factor_l2: PositiveFloat = 16.0
    """L2 penalty of the factors, with labels in units of their standard deviation."""
    factor_rounds: PositiveInt = 8
    """Iterations of alternating least squares for the factors."""
    positions: PositiveInt = 32
    """Width of the co-occurrence embeddings of users and items, independent of labels."""
    position_l2: PositiveFloat = 5.0
    """L2 penalty of the regressions of labels on the co-occurrence embeddings."""
    smoothing: PositiveFloat = 10.0
    """Additive smoothing of target means, in rows of the overall mean."""
    max_categories: PositiveInt = 64
    """Maximum cardinality of a column with one feature per category; larger columns give one target mean."""
