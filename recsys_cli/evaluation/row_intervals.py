"""95 % confidence intervals of pointwise metrics, with users as clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.clusters import Clusters, Spread, jackknife
from recsys_cli.evaluation.result import Estimate
from recsys_cli.features.hashing import mix
from recsys_cli.metrics import PointwiseMetric
from recsys_cli.metrics.metric import Floats, ScoreCounts

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
