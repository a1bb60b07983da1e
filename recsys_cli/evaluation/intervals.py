"""95 % confidence intervals: rows and rankings of one user are not independent, so users are the sampling unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.result import Estimate, Estimates
from recsys_cli.features.hashing import mix
from recsys_cli.features.schema import FIRST
from recsys_cli.metrics import IMPRESSION, RANKING, Hits, PointwiseMetric
from recsys_cli.metrics.foreign import extended
from recsys_cli.metrics.metric import Floats, RankedImpressions, ScoreCounts
from recsys_cli.metrics.named import impression_names
from recsys_cli.packages import special


@dataclass(frozen=True)
class Clusters:
    """Groups of dependent rows.

    Attributes:
        index: Cluster of each row, below `count`; shape (N,).
        count: Number of clusters, C.
    """

    index: npt.NDArray[np.int64]
    count: int

    @classmethod
    def of_users(cls, user_idx: npt.NDArray[np.integer]) -> Clusters:
        """Cluster rows by user (N,); a row without a distinct user is its own cluster."""
        index = user_idx.astype(np.int64)
        without_id = index < FIRST
        index[without_id] = -1 - np.arange(np.count_nonzero(without_id))
        return cls.of(index)

    @classmethod
    def of(cls, index: npt.NDArray[np.integer]) -> Clusters:
        """Renumber clusters from 0. If all rows are of one cluster, each row becomes its own."""
        values, dense = np.unique(index, return_inverse=True)
        if len(values) == 1:
            return cls(np.arange(len(index)), len(index))
        return cls(dense.astype(np.int64), len(values))

    def sums(self, values: npt.NDArray[np.floating] | npt.NDArray[np.bool_] | None = None) -> Floats:
        """Sum values (N,) by cluster, or count rows; shape (C,)."""
        return np.bincount(self.index, weights=values, minlength=self.count).astype(np.float64)

    def shares(self) -> Floats:
        """Return each cluster's share of all rows; shape (C,)."""
        return self.sums() / max(1, len(self.index))


def by_owner(values: Floats, owners: npt.NDArray[np.integer] | None) -> Floats:
    """Return one value per user from values of several rankings per user (U,) or (U, M), by `owners` (U,).

    Their mean is that of the rankings, and their variance that of the mean over users (linearized ratio of sums).
    """
    if owners is None or not len(values):
        return values
    index, first = np.unique(owners, return_inverse=True)[1], values.mean(axis=0)
    sums = np.zeros((int(index.max()) + 1, *values.shape[1:]))
    np.add.at(sums, index, values - first)
    return np.asarray(first + sums * (len(sums) / len(values)))


@dataclass(frozen=True)
class Spread:
    """The standard error of a metric, with its degrees of freedom."""

    error: float
    freedom: float = math.inf

    @property
    def margin(self) -> float:
        """Half the width of a 95 % confidence interval."""
        return self.reach(0.05)

    def reach(self, p: float) -> float:
        """Return the distance from zero with a two-sided p-value."""
        return 0.0 if not self.error else -float(special.stdtrit(self.freedom, p / 2)) * self.error

    def p(self, distance: float) -> float:
        """Return the two-sided p-value of a distance from zero.

        At least that of a sign test in which all clusters agree, because few clusters have equal values by chance.
        """
        if abs(distance) < 1e-12:
            return 1.0
        equal = self.error <= abs(distance) * 1e-12
        p = 0.0 if equal else 2 * float(special.stdtr(self.freedom, -abs(distance) / self.error))
        return max(p, 2**-self.freedom)

    def __add__(self, other: Spread) -> Spread:
        """Return the error of a sum of independent values, with Welch-Satterthwaite degrees of freedom (1946)."""
        variances = self.error**2, other.error**2
        total = sum(variances)
        if not total:
            return Spread(0.0)
        freedom = (self.freedom, other.freedom)
        spent = sum(variance**2 / free for variance, free in zip(variances, freedom, strict=True))
        return Spread(math.sqrt(total), max(1.0, total**2 / spent) if spent else math.inf)


def jackknife(sums: Floats, shares: Floats) -> Spread:
    """Return the standard error of a metric from the influence of each cluster.

    The delete-one-cluster jackknife of a linearized metric, also known as CR3 (MacKinnon, Nielsen and Webb, 2023).
    Degrees of freedom are Kish's effective number of clusters less one, because a few users with most of the rows are
    few clusters. `sums` (C,) are influence values summed by cluster, with total zero; `shares` (C,) weights with sum
    1.
    """
    if len(sums) < 2:
        return Spread(0.0, 0.0)
    scaled = sums / np.maximum(1 - shares, 1e-9)
    variance = (len(sums) - 1) / len(sums) * float(scaled @ scaled)
    return Spread(math.sqrt(variance), max(1.0, 1 / float(shares @ shares) - 1))


_CHUNK = 1 << 22
_USERS = 12


def ranking_estimates(
    hits: Mapping[str, Hits], k: Sequence[int], config: EvaluateConfig
) -> dict[str, dict[str, Estimate]]:
    """Compute ranking metrics of several systems for the same users, with the same resamples of users."""
    if not hits:
        return {}
    metrics = extended(RANKING, config.metrics).values()
    columns = [(name, metric, cut_off) for name in hits for cut_off in sorted(set(k)) for metric in metrics]
    values = np.stack([metric.compute(hits[name], cut_off) for name, metric, cut_off in columns], axis=1)
    values = by_owner(values, next(iter(hits.values())).owners)
    means = unit_estimates(values, resamples=config.bootstrap, seed=config.seed)
    estimates: dict[str, dict[str, Estimate]] = {name: {} for name in hits}
    for (name, metric, cut_off), mean in zip(columns, means, strict=True):
        estimates[name][f"{config.label}{metric.name}@{cut_off}"] = mean
    return estimates


def widened(interval: tuple[float, float], num_users: int) -> tuple[float, float]:
    """Return the interval of a metric in [0, 1], within it; at 0 or 1 up to the exact bound 1 - 0.025^(1/U) for U users.

    Resamples of linearized values can leave [0, 1]. Resamples of equal values are equal, but U users without a hit leave
    room for a share with hits (Clopper and Pearson, 1934).
    """
    reach, (low, high) = 0.025 ** (1 / num_users), (max(0.0, interval[0]), min(1.0, interval[1]))
    return {(0.0, 0.0): (0.0, 1 - reach), (1.0, 1.0): (reach, 1.0)}.get((low, high), (low, high))


def unit_estimates(values: Floats, *, resamples: int, seed: int) -> list[Estimate]:
    """Return metrics in [0, 1]: the mean of each column of values (U, M) over users, with intervals."""
    means = mean_estimates(values, resamples=resamples, seed=seed)
    ends = (None if mean.interval is None else widened(mean.interval, len(values)) for mean in means)
    return [
        mean if found is None else Estimate(value=mean.value, low=found[0], high=found[1])
        for mean, found in zip(means, ends, strict=True)
    ]


def mean_estimates(values: Floats, *, resamples: int, seed: int) -> list[Estimate]:
    """Return the mean of each column of values (U, M) over users, with intervals from a bootstrap over users.

    All columns share the resamples.
    """
    num_users, num_columns = values.shape
    if num_users == 0:
        return [Estimate(value=None)] * num_columns
    rng = np.random.default_rng(mix(seed, _USERS))
    means = np.empty((resamples, num_columns))
    step = max(1, _CHUNK // num_users)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        means[start:stop] = _resample_counts(rng, stop - start, num_users) @ values / num_users
    below = _tail_share(num_users)
    center, ends = values.mean(axis=0), np.quantile(means, [below, 1 - below], axis=0)
    return [
        Estimate(value=float(value), low=min(float(low), float(value)), high=max(float(high), float(value)))
        for value, low, high in zip(center, *ends, strict=True)
    ]


def _resample_counts(rng: np.random.Generator, resamples: int, num_users: int) -> npt.NDArray[np.float64]:
    """Resample users with replacement and count each; shape (resamples, num_users)."""
    resampled = rng.integers(0, num_users, (resamples, num_users)) + num_users * np.arange(resamples)[:, None]
    return np.bincount(resampled.ravel(), minlength=resamples * num_users).reshape(resamples, num_users).astype(float)


def _tail_share(num_users: int) -> float:
    """Return the share of resamples below the 95 % interval: slightly less than 2.5 %.

    Resamples vary less than samples, and the t distribution has wider tails than the normal one (expanded percentile
    interval of Hesterberg, 2015).
    """
    if num_users < 2:
        return 0.025
    reach = math.sqrt(num_users / (num_users - 1)) * float(special.stdtrit(num_users - 1, 0.975))
    return math.erfc(reach / math.sqrt(2)) / 2


_PARTS = 11
_CLUSTERS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class ScoredRows:
    """Rows with a label and a score.

    Attributes:
        group: Score group of each row, shape (N,).
        positive: Rows with label 1, shape (N,).
        clusters: Clusters of dependent rows, one for each user.
    """

    tally: ScoreCounts
    group: npt.NDArray[np.int64]
    positive: npt.NDArray[np.bool_]
    clusters: Clusters

    @classmethod
    def of(cls, labels: npt.NDArray[np.float32], scores: npt.ArrayLike, clusters: Clusters) -> ScoredRows:
        """Group rows by score: binary labels (N,) and scores (N,)."""
        tally, group = ScoreCounts.grouped(labels, scores)
        return cls(tally, group, labels > 0.5, clusters)

    @classmethod
    def of_errors(cls, labels: npt.NDArray[np.float32], predictions: npt.ArrayLike, clusters: Clusters) -> ScoredRows:
        """Group rows by error; see `ScoreCounts.of_errors`."""
        errors = np.asarray(predictions, dtype=np.float64) - labels
        return cls.of(np.ones(len(errors), np.float32), errors, clusters)

    def of_rows(self, values: tuple[Floats, Floats]) -> Floats:
        """Expand values of positive and negative rows by score group to one value per row; shape (N,)."""
        return np.where(self.positive, values[0][self.group], values[1][self.group])

    def cluster_weights(self) -> Floats:
        """Return the weight of each cluster: its share of rows, averaged over the classes; shape (C,)."""
        num_positive, num_rows = np.count_nonzero(self.positive), len(self.positive)
        if num_positive in {0, num_rows}:
            return self.clusters.shares()
        positive = self.clusters.sums(self.positive.astype(np.float64))
        return (positive / num_positive + (self.clusters.sums() - positive) / (num_rows - num_positive)) / 2


def pointwise_estimates(
    rows: ScoredRows, metrics: Mapping[str, PointwiseMetric], *, resamples: int, seed: int
) -> dict[str, Estimate]:
    """Compute pointwise metrics with cluster-robust intervals: the rows of a user are one cluster.

    Metrics without a derivative, such as ECE, take `resamples` normal samples.
    """
    cluster_weights = rows.cluster_weights()
    estimates: dict[str, Estimate] = {}
    for name, metric in metrics.items():
        value = metric.compute(rows.tally)
        if not np.isfinite(value):
            estimates[name] = Estimate(value=None)
        elif metric.parts is not None:
            estimates[name] = _of_parts(value, rows, metric, resamples=resamples, seed=mix(seed, _PARTS))
        else:
            sums = rows.clusters.sums(rows.of_rows(metric.influence(rows.tally)))
            most = 1.0 if metric.better == "higher" else math.inf
            estimates[name] = _around(value, jackknife(sums, cluster_weights), most=most)
    return estimates


def weighted_estimate(values: Floats, weights: Floats) -> Estimate:
    """Return the mean of values (U,) in [0, 1], weighted by users (U,), with its interval."""
    if not len(values):
        return Estimate(value=None)
    cluster_weights = weights / weights.sum()
    value = float(values @ cluster_weights)
    return _around(value, jackknife(cluster_weights * (values - value), cluster_weights), most=1.0)


def mean_estimate(values: Floats, clusters: Clusters) -> Estimate:
    """Return the mean of values (N,) in [0, 1] with its cluster-robust interval."""
    value = float(values.mean())
    spread = jackknife(clusters.sums((values - value) / len(values)), clusters.shares())
    return _around(value, spread, most=1.0)


def _around(value: float, spread: Spread, *, most: float) -> Estimate:
    if not spread.freedom:  # a single cluster
        return Estimate(value=value)
    low, high = max(0.0, value - spread.margin), min(most, value + spread.margin)
    return Estimate(value=value, low=min(low, value), high=max(high, value))


def _of_parts(value: float, rows: ScoredRows, metric: PointwiseMetric, *, resamples: int, seed: int) -> Estimate:
    """Return the interval of a sum of absolute values, from normal samples of its parts.

    Samples are biased upwards: they have the noise of the rows plus their own. The lower end is 0 if noise gives such
    a value, else the quantile reflected at the value (basic bootstrap: Davison and Hinkley, 1997, section 5.2). The
    upper end is the plain quantile: a reflected one would be too low near 0.
    """
    assert metric.parts is not None
    of_score, parts = metric.parts(rows.tally)
    covariance, freedom = _covariance(rows, of_score[rows.group], parts, rows.of_rows(metric.influence(rows.tally)))
    variances, axes = np.linalg.eigh(covariance)
    wider = Spread(1.0, freedom).margin / Spread(1.0).margin
    normal = np.random.default_rng(seed).normal(scale=wider, size=(resamples, len(parts)))
    noise = normal @ (axes * np.sqrt(np.maximum(variances, 0))).T
    top, of_noise = (float(np.quantile(np.abs(sample).sum(axis=1), 0.975)) for sample in (parts + noise, noise))
    low = 0.0 if value <= of_noise else min(max(0.0, 2 * value - top), value)
    return Estimate(value=value, low=low, high=max(top, value))


def _covariance(rows: ScoredRows, part: npt.NDArray[np.int64], parts: Floats, added: Floats) -> tuple[Floats, float]:
    """Return the covariance of B parts, (B, B), and its degrees of freedom, by the jackknife over clusters.

    Each row has a `part`, and the influence `added` on it; both (N,).
    """
    clusters, cluster_weights, width = rows.clusters, rows.clusters.shares(), len(parts)
    total = np.zeros((width, width))
    for start in range(0, clusters.count, _CLUSTERS_AT_ONCE):
        stop = min(start + _CLUSTERS_AT_ONCE, clusters.count)
        chosen = (clusters.index >= start) & (clusters.index < stop)
        cell = (clusters.index[chosen] - start) * width + part[chosen]
        sums = np.bincount(cell, weights=added[chosen], minlength=(stop - start) * width).reshape(-1, width)
        share = cluster_weights[start:stop, None]
        scaled = (sums - share * parts) / np.maximum(1 - share, 1e-9)
        total += scaled.T @ scaled
    number = max(2, clusters.count)
    return total * (number - 1) / number, max(1.0, 1 / float(cluster_weights @ cluster_weights) - 1)


Ints = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Impressions:
    """The G impressions with clicked and other candidates.

    Attributes:
        rows: Indices of their rows among all rows, shape (M,).
        index: Impression of each of them, shape (M,).
        clusters: Impressions by user; of an impression, the user of its first row.
        left_out: Impressions of one class.
    """

    rows: npt.NDArray[np.intp]
    index: Ints
    clusters: Clusters
    left_out: int

    @classmethod
    def of(cls, numbers: Ints, labels: npt.NDArray[Any], row_clusters: Ints) -> Impressions:
        """Group rows by the number of their impression, -1 for none; each (N,)."""
        rows = np.flatnonzero(numbers >= 0)
        index = np.unique(numbers[rows], return_inverse=True)[1]
        sizes, clicked = np.bincount(index), np.bincount(index, weights=labels[rows] > 0.5)
        both = (clicked > 0) & (clicked < sizes)
        rows, index = rows[both[index]], (np.cumsum(both) - 1)[index[both[index]]]
        first = rows[np.unique(index, return_index=True)[1]]
        return cls(rows, index, Clusters.of(row_clusters[first]), int(np.count_nonzero(~both)))

    def values(self, labels: npt.NDArray[Any], scores: npt.NDArray[np.floating]) -> dict[str, Floats]:
        """Return the metrics of each impression by name, each (G,), from labels and scores of all rows (N,)."""
        if not len(self.rows):
            return {}
        ranked = RankedImpressions.of(self.index, labels[self.rows], scores[self.rows])
        names = ((metric, name, k) for metric in IMPRESSION.values() for name, k in impression_names(metric).items())
        return {name: metric.compute(ranked, k) for metric, name, k in names}

    def estimates(self, labels: npt.NDArray[Any], scores: npt.NDArray[np.floating]) -> Estimates:
        """Return the mean of each metric over impressions, with its interval over users."""
        return {name: mean_estimate(values, self.clusters) for name, values in self.values(labels, scores).items()}

    @property
    def note(self) -> str:
        """The impressions in a sentence."""
        left_out = f" {self.left_out:,} of one class are left out." if self.left_out else ""
        return (
            f"Metrics per impression are means over the {len(self.clusters.index):,} impressions with clicked and other "
            f"candidates, with intervals over users; ties count as their average.{left_out}"
        )
