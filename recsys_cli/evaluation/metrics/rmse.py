"""RMSE: how far off is the prediction, large errors first?"""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally


def rmse(tally: Tally) -> Floats:
    """Return the root of the mean squared difference of probability and label: the root of the score of Brier (1950)."""
    squared = tally.positive @ (1 - tally.probabilities) ** 2 + tally.negative @ tally.probabilities**2
    return _root_of_mean(np.asarray(squared, np.float64), tally)


def rmse_of_errors(tally: Tally) -> Floats:
    """Return the root of the mean squared error, in the label's units, from a tally of errors."""
    return _root_of_mean(tally.rows @ tally.logits**2, tally)


def _root_of_mean(squared: Floats, tally: Tally) -> Floats:
    rows = tally.rows.sum(axis=1)
    return np.sqrt(np.divide(squared, rows, out=np.full_like(squared, np.nan), where=rows > 0))


RMSE = PointwiseMetric("rmse", "RMSE", "lower", rmse)
RMSE_OF_ERRORS = PointwiseMetric("rmse", "RMSE", "lower", rmse_of_errors)
