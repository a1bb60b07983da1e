"""RMSE: how far off is the prediction, large errors first?"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import ByRow, Influence, PointwiseMetric, mean_influence, mean_of
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def rmse(tally: ScoreCounts) -> float:
    """Return the root of the mean squared difference of probability and label: the root of the score of Brier (1950)."""
    return math.sqrt(mean_of(*_squares(tally), tally))


def rmse_of_errors(tally: ScoreCounts) -> float:
    """Return the root of the mean squared error, in the label's units, from a tally of errors."""
    return math.sqrt(mean_of(tally.logits**2, tally.logits**2, tally))


def influence(tally: ScoreCounts) -> Influence:
    """Return how far each row's square is from the mean, by the slope of the root."""
    return _by_slope(mean_influence(*_squares(tally), tally), rmse(tally))


def influence_of_errors(tally: ScoreCounts) -> Influence:
    """Return the same from a tally of errors."""
    return _by_slope(mean_influence(tally.logits**2, tally.logits**2, tally), rmse_of_errors(tally))


def _squares(tally: ScoreCounts) -> tuple[Floats, Floats]:
    return (1 - tally.probabilities) ** 2, tally.probabilities**2


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
