"""Metric types. `name` is the key in evaluation.json (of rankings before "@k"), `title` the name in tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from recsys_cli.packages import np, npt

Floats: TypeAlias = "npt.NDArray[np.float64]"


@dataclass(frozen=True)
class ScoreCounts:
    """Number of positive and negative rows per distinct score.

    Attributes:
        logits: Scores, ascending; shape (G,).
        positive: Rows with label 1; shape (G,).
        negative: Rows with label 0; shape (G,).
    """

    logits: Floats
    positive: Floats
    negative: Floats

    @classmethod
    def of(cls, labels: npt.NDArray[np.float32], logits: npt.ArrayLike) -> ScoreCounts:
        """Group labels (N,) and logits (N,) by distinct score."""
        scores = np.asarray(logits)
        order = np.argsort(scores)
        starts = run_starts(scores[order])
        positive, rows = count_runs(labels[order], starts)
        return cls(scores[order][starts].astype(np.float64), positive, rows - positive)

    @classmethod
    def grouped(
        cls, labels: npt.NDArray[np.float32], logits: npt.ArrayLike
    ) -> tuple[ScoreCounts, npt.NDArray[np.int64]]:
        """Like `of`; also return the group of each row, shape (N,)."""
        scores, group = np.unique(np.asarray(logits, dtype=np.float64), return_inverse=True)
        positive = np.bincount(group, weights=labels, minlength=len(scores)).astype(np.float64)
        rows = np.bincount(group, minlength=len(scores)).astype(np.float64)
        return cls(scores, positive, rows - positive), group.astype(np.int64)

    @classmethod
    def of_errors(cls, labels: npt.NDArray[np.float32], predictions: npt.ArrayLike) -> ScoreCounts:
        """Group rows by signed error, prediction - label, in place of the score; both (N,)."""
        errors = np.asarray(predictions, dtype=np.float64) - labels
        return cls.of(np.ones(len(errors), np.float32), errors)

    @property
    def rows(self) -> Floats:
        """Rows of each score, shape (G,)."""
        return self.positive + self.negative

    @property
    def probabilities(self) -> Floats:
        """Sigmoid of the scores, shape (G,)."""
        return 1 / (1 + np.exp(-np.clip(self.logits, -700, 700)))

    def quantiles(self, groups: int) -> npt.NDArray[np.int64]:
        """Return the quantile group of each score, of equal mass; shape (G,)."""
        rows = self.rows
        middle = np.cumsum(rows) - rows / 2
        return np.minimum((middle * (groups / max(float(rows.sum()), 1.0))).astype(np.int64), groups - 1)


def run_starts(*columns: npt.NDArray[np.generic]) -> npt.NDArray[np.intp]:
    """Return the index of the first row of each run of equal rows; columns (N,)."""
    changes = [values[1:] != values[:-1] for values in columns]
    return np.flatnonzero(np.append(np.ones(min(1, len(columns[0])), dtype=bool), np.logical_or.reduce(changes)))


def count_runs(labels: npt.NDArray[np.generic], starts: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return the number of positive rows and of all rows per run, from binary labels (N,)."""
    rows = np.diff(starts, append=len(labels)).astype(np.float64)
    return np.add.reduceat(labels, starts, dtype=np.float64), rows


@dataclass(frozen=True)
class RankedImpressions:
    """Ranked candidates of G impressions, each with clicked and other candidates.

    A function of the rank is averaged over tied candidates (McSherry and Najork, ECIR 2008), so that neither the order
    of the rows nor a sort changes a metric.

    Attributes:
        rank: Rank of each candidate within its impression, from 0; shape (M,).
        runs: First row of each run of equal scores, shape (S,).
        clicked, rows: Clicked and all rows of each run; shape (S,).
        first: First run of each impression, shape (G,).
    """

    rank: Floats
    runs: npt.NDArray[np.intp]
    clicked: Floats
    rows: Floats
    first: npt.NDArray[np.intp]

    @classmethod
    def of(
        cls, impression: npt.NDArray[np.integer], labels: npt.NDArray[np.floating], scores: npt.NDArray[np.floating]
    ) -> RankedImpressions:
        """Rank the candidates (M,) of impressions numbered from 0; label 1 is a click."""
        order = np.lexsort((-scores, impression))
        impression, scores = impression[order], scores[order]
        runs, starts = run_starts(impression, scores), run_starts(impression)
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        clicked, rows = count_runs(labels[order] > 0.5, runs)
        return cls(rank.astype(np.float64), runs, clicked, rows, run_starts(impression[runs]))

    @property
    def num_clicked(self) -> Floats:
        """Clicked candidates of each impression, shape (G,)."""
        return np.add.reduceat(self.clicked, self.first)

    @property
    def num_candidates(self) -> Floats:
        """Candidates of each impression, shape (G,)."""
        return np.add.reduceat(self.rows, self.first)

    def clicked_sum(self, values: Floats) -> Floats:
        """Sum values by rank (M,) over the clicked candidates of each impression; shape (G,)."""
        means = np.add.reduceat(values, self.runs) / self.rows
        return np.add.reduceat(means * self.clicked, self.first)


Influence = tuple[Floats, Floats]
"""Derivative of a metric by row weight: for a positive and for a negative row of each score; each (G,)."""

Better = Literal["higher", "lower", "one"]
Summary = Literal["mean", "root mean", "class means"]
"""Direction of a metric; `one`: the ideal value is 1."""


@dataclass(frozen=True)
class ByRow:
    """Row values of a metric, for paired tests: from labels and scores (N,) to values (N,), and their summary."""

    values: Callable[[npt.ArrayLike, npt.ArrayLike], Floats]
    summary: Summary = "mean"


@dataclass(frozen=True)
class PointwiseMetric:
    """Metric of scores against labels.

    Attributes:
        compute: From score counts to the value; NaN if undefined.
        influence: Influence function at the score counts, the basis of standard errors; for defined values only.
        of_probabilities: True if scores have to be logits; False if only their order counts.
        parts: For a sum of B absolute values, biased upwards by noise: from score counts to the part of each score, (G,),
            and the parts, (B,). `influence` is then the contribution of a row to its part.
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
        """Return the metric of N rows: logits and labels, positive above 0.5, or numbers in one unit; NaN if undefined."""
        targets = np.asarray(labels, dtype=np.float32)
        return self.compute(
            ScoreCounts.of_errors(targets, scores)
            if self.of_errors
            else ScoreCounts.of((targets > 0.5).astype(np.float32), scores)
        )


def mean_of(positive: Floats, negative: Floats, counts: ScoreCounts) -> float:
    """Return the mean over rows of per-score values for positive and negative rows, each (G,)."""
    rows = float(counts.rows.sum())
    return float(counts.positive @ positive + counts.negative @ negative) / rows if rows else np.nan


def mean_influence(positive: Floats, negative: Floats, counts: ScoreCounts) -> Influence:
    """Return the influence of `mean_of`."""
    rows, value = float(counts.rows.sum()), mean_of(positive, negative, counts)
    return (positive - value) / rows, (negative - value) / rows


@dataclass(frozen=True)
class GroupedMetric:
    """Metric per user, reported as the weighted mean over users.

    Computes values and weights of the G users with a defined value, from users, labels and scores (N,).
    """

    name: str
    title: str
    compute: Callable[
        [npt.NDArray[np.integer], npt.NDArray[np.float32], npt.NDArray[np.floating]], tuple[Floats, Floats]
    ]


@dataclass(frozen=True)
class ImpressionMetric:
    """Metric in [0, 1] of the given candidates of an impression, reported as the mean over impressions.

    Attributes:
        compute: From ranked impressions and a cut-off to values, (G,).
        cut_offs: Reported cut-offs; None for all candidates.
    """

    name: str
    title: str
    compute: Callable[[RankedImpressions, int | None], Floats]
    cut_offs: tuple[int | None, ...] = (None,)


@dataclass(frozen=True)
class Hits:
    """Hits in the rankings of U users.

    Attributes:
        hits: Relevance of the item at each rank; shape (U, P), P at least the largest cut-off.
        num_relevant: Number of relevant items, at least 1; shape (U,).
        owners: User of each ranking, if users have several; shape (U,). None for one ranking per user.
    """

    hits: npt.NDArray[np.bool_]
    num_relevant: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64] | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Ranked(Hits):
    """Hits and ranked candidates: the index of each, -1 for an empty rank; shape (U, P)."""

    candidates: npt.NDArray[np.int32]


@dataclass(frozen=True)
class RankingMetric:
    """Metric of a user's top k in [0, 1], reported as the mean over users."""

    name: str
    title: str
    compute: Callable[[Hits, int], Floats]


@dataclass(frozen=True)
class Catalog:
    """Train statistics and features of the I candidates.

    Attributes:
        counts: Train interactions per candidate, descending; shape (I,).
        features: Feature ids of the candidates, such as genres, concatenated and distinct within an item.
        offsets: Start of each candidate's features, and the total at the end; shape (I + 1,).
    """

    counts: npt.NDArray[np.int64]
    num_rows: int
    features: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Recommended(Ranked):
    """Recommendations to U users, for metrics beyond accuracy.

    Attributes:
        by_popularity: Rank of each recommended item in the user's popularity ranking, from 0; shape (U, P).
        catalog: Statistics of the candidates.
        relevant: Relevant candidates of each user, ascending, concatenated; None if unknown.
        relevant_offsets: Start of each user's relevant candidates, and the total at the end; shape (U + 1,).
    """

    by_popularity: npt.NDArray[np.int64]
    catalog: Catalog
    relevant: npt.NDArray[np.int64] | None = field(default=None, kw_only=True)
    relevant_offsets: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64), kw_only=True)


@dataclass(frozen=True)
class ListMetric:
    """Metric of the top k with statistics of the catalog; neither end is better without a direction.

    Computes values of U users, NaN if undefined, reported as their mean; or one value of all lists, of shape ().

    Attributes:
        in_unit: Whether the metric is in [0, 1]; its interval is, too.
    """

    name: str
    title: str
    better: Better | None
    compute: Callable[[Recommended, int], Floats]
    in_unit: bool = False


Metric = PointwiseMetric | GroupedMetric | ImpressionMetric | RankingMetric | ListMetric
_M = TypeVar("_M", bound=Metric)


def by_name(*metrics: _M) -> dict[str, _M]:
    """Return metrics by name, in the order of tables."""
    return {metric.name: metric for metric in metrics}
