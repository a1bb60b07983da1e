"""What a metric is: a name, how to compute it over many resamples or users at once, and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.score_counts import Floats, ScoreCounts

Influence = tuple[Floats, Floats]
"""Derivative of a figure by the weight of one row of each score: of positive rows and of negative ones; each (G,)."""

Better = Literal["higher", "lower", "one"]
"""Which values are better; `one` where 1 is right."""


@dataclass(frozen=True)
class ByRow:
    """The values of single rows that paired tests of two systems compare.

    Attributes:
        values: From labels (N,) and scores (N,) to a value of each row, (N,).
        summary: The figure is the mean of the values, the root of their mean, or their mean over each class.
    """

    values: Callable[[npt.ArrayLike, npt.ArrayLike], Floats]
    summary: Literal["mean", "root mean", "class means"] = "mean"


@dataclass(frozen=True)
class PointwiseMetric:
    """A figure of scores against labels.

    Attributes:
        name: As in evaluation.json.
        title: As in tables.
        better: Which values are better; figures with `higher` are at most 1.
        compute: From a tally to the figure; NaN where it is not defined.
        influence: Where it is defined, its influence function at the tally: the linear part of the figure, which standard errors
            come from.
        of_probabilities: Whether scores have to be logits; else any scores will do, as long as higher means more likely.
        parts: Of a figure that adds up the absolute values of B parts, to which noise only ever adds: from a tally to the part of
            each score, (G,), and the parts, (B,). Then `influence` is what a row adds to its part.
        by_row: Values of single rows for paired tests; None for a metric without them.
        of_errors: Whether the tally counts errors of labels that are numbers, in place of scores of labels of 0 and 1.
    """

    name: str
    title: str
    better: Better
    compute: Callable[[ScoreCounts], float]
    influence: Callable[[ScoreCounts], Influence]
    of_probabilities: bool = True
    parts: Callable[[ScoreCounts], tuple[npt.NDArray[np.int64], Floats]] | None = None
    by_row: ByRow | None = None
    of_errors: bool = False

    def of_rows(self, labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
        """Return the figure of rows; NaN where it is not defined.

        Args:
            labels: Numbers, or of a metric of labels of 0 and 1 positive above 0.5; shape (N,).
            scores: Predictions in the units of the labels, or logits; shape (N,).
        """
        known = np.asarray(labels, dtype=np.float32)
        return self.compute(
            ScoreCounts.of_errors(known, scores)
            if self.of_errors
            else ScoreCounts.of((known > 0.5).astype(np.float32), scores)
        )


def mean_of(positive: Floats, negative: Floats, tally: ScoreCounts) -> float:
    """Return the mean over rows of what rows of each score and label have, each (G,); NaN without rows."""
    rows = float(tally.rows.sum())
    return float(tally.positive @ positive + tally.negative @ negative) / rows if rows else np.nan


def mean_influence(positive: Floats, negative: Floats, tally: ScoreCounts) -> Influence:
    """Return the influence of such a mean."""
    rows, value = float(tally.rows.sum()), mean_of(positive, negative, tally)
    return (positive - value) / rows, (negative - value) / rows


@dataclass(frozen=True)
class GroupedMetric:
    """A figure of the rows of each user, of which a weighted mean over users is reported.

    Attributes:
        name: As in evaluation.json.
        title: As in tables.
        compute: From users (N,), labels (N,) and scores (N,) to the figures of G users where it is defined and their weights.
    """

    name: str
    title: str
    compute: Callable[
        [npt.NDArray[np.integer], npt.NDArray[np.float32], npt.NDArray[np.floating]], tuple[Floats, Floats]
    ]


@dataclass(frozen=True)
class Hits:
    """What the rankings of U users found.

    Attributes:
        hits: Whether place p of user u's ranking holds something relevant; shape (U, P), P at least the largest cut-off.
        num_relevant: How much there was to find, at least 1, shape (U,).
    """

    hits: npt.NDArray[np.bool_]
    num_relevant: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranked(Hits):
    """What was ranked, too.

    Attributes:
        places: Which candidate stands at place p of user u's ranking, an index into the candidates, -1 where there is none;
            shape (U, P).
    """

    places: npt.NDArray[np.int32]


@dataclass(frozen=True)
class RankingMetric:
    """A figure of a user's ranking, cut off after k places; the mean over users is what is reported.

    Attributes:
        name: As in evaluation.json, where "@k" is added.
        title: As in tables.
        compute: From hits of U users and k to U figures between 0 and 1.
    """

    name: str
    title: str
    compute: Callable[[Hits, int], Floats]


@dataclass(frozen=True)
class Catalogue:
    """What train tells of the I candidates, in their order.

    Attributes:
        counts: Rows of train, shape (I,), descending.
        num_rows: Rows of train, those of items that are no candidates included.
        features: What is known of the items beside who met them, such as genres, as numbers; one item's after the other's, each
            once.
        offsets: Where each item's features start, and their number at the end; shape (I + 1,).
    """

    counts: npt.NDArray[np.int64]
    num_rows: int
    features: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Recommended(Ranked):
    """What U users were recommended, whether or not they wanted it.

    Attributes:
        by_popularity: At which place, from 0, the user's ranking by popularity has that item; shape (U, P).
        catalogue: What train tells of the items.
    """

    by_popularity: npt.NDArray[np.int64]
    catalogue: Catalogue


@dataclass(frozen=True)
class ListMetric:
    """A figure of what is recommended, beyond how much of it is right, cut off after k places.

    Attributes:
        name: As in evaluation.json, where "@k" is added.
        title: As in tables.
        better: Which values are better; None where that is for the reader to say.
        compute: From the lists and k to the figures of U users, NaN where one has none, of which the mean is reported; or to
            one figure of all lists together, of shape ().
    """

    name: str
    title: str
    better: Better | None
    compute: Callable[[Recommended, int], Floats]


Metric = PointwiseMetric | GroupedMetric | RankingMetric | ListMetric
