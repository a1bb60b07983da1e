"""Options of collaborative features. No torch here, so that a config is checked without loading it."""

from __future__ import annotations

from pydantic import Field, PositiveFloat, PositiveInt

from recsys_cli.config.section import Section


class CollaborativeOptions(Section):
    """Collaborative features: biases, factors, regressions and tastes of users and items, learned out of fold for every label."""

    # Chosen on a tenth of the train rows of MovieLens latest-small that was held out, with the rating as a second label: an AUC
    # of 0.8332. Positions: 0.8321 with 16, 0.8256 without any; 48 factors with 16 positions 0.8328 in twice the time. Before there
    # were positions, with 48 factors: 0.8266, and 0.8189 without the rating; 0.8272 with ten folds; 32 factors with a penalty of 8
    # or 32 0.8231 or 0.8218. Leaves and their least rows: within 0.0005. Trees: flat from 150 on.

    folds: int = Field(5, ge=2)
    """Parts of train: what a row is told of its user and item is learnt from the parts that it is not in."""
    embedding_dim: PositiveInt = 16
    """Width of the factors of users and items."""
    factor_l2: PositiveFloat = 16.0
    """L2 penalty of the factors; labels are in units of their standard deviation."""
    factor_rounds: PositiveInt = 8
    """How often the factors of users and those of items are solved for in turn."""
    positions: PositiveInt = 32
    """Width of the vectors that say where users and items are by who met what, whatever the label."""
    position_l2: PositiveFloat = 5.0
    """L2 penalty of the regressions of labels on them."""
    smoothing: PositiveFloat = 10.0
    """How many rows of the mean a mean over few rows is mixed with."""
    max_categories: PositiveInt = 64
    """Largest cardinality of a column with a feature for each of its categories; a larger one has the mean of the labels."""
