"""RMSE: root mean squared error."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import ByRow, Influence, PointwiseMetric, mean_influence, mean_of
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def rmse(counts: ScoreCounts) -> float:
    """Return the root of the mean squared (probability - label), the score of Brier (1950)."""
    return math.sqrt(mean_of(*_squares(counts), counts))


def rmse_of_errors(counts: ScoreCounts) -> float:
    """Return the root mean squared error in the units of the label, from counts of errors."""
    return math.sqrt(mean_of(counts.logits**2, counts.logits**2, counts))


def influence(counts: ScoreCounts) -> Influence:
    """Influence of `rmse`."""
    return _by_slope(mean_influence(*_squares(counts), counts), rmse(counts))


def influence_of_errors(counts: ScoreCounts) -> Influence:
    """Influence of `rmse_of_errors`."""
    return _by_slope(mean_influence(counts.logits**2, counts.logits**2, counts), rmse_of_errors(counts))


def _squares(counts: ScoreCounts) -> tuple[Floats, Floats]:
    return (1 - counts.probabilities) ** 2, counts.probabilities**2


def _row_squares(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> Floats:
    return np.square(np.subtract(predictions, labels, dtype=np.float64))


def _by_slope(of_mean: Influence, root: float) -> Influence:
    slope = 1 / (2 * root) if root else 0.0
    return np.asarray(of_mean[0] * slope), np.asarray(of_mean[1] * slope)


RMSE = PointwiseMetric("rmse", "RMSE", "lower", rmse, influence)
RMSE_OF_ERRORS = PointwiseMetric(
    "rmse",
    "RMSE",
    "lower",
    rmse_of_errors,
    influence_of_errors,
    by_row=ByRow(_row_squares, "root mean"),
    of_errors=True,
)
