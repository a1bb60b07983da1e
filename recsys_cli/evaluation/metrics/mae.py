"""MAE: how far off is the prediction?"""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally


def mae(tally: Tally) -> Floats:
    """Return the mean absolute difference of probability and label; it prefers sure answers to honest probabilities."""
    return _mean(tally.positive @ (1 - tally.probabilities) + tally.negative @ tally.probabilities, tally)


def mae_of_errors(tally: Tally) -> Floats:
    """Return the mean absolute error, in the label's units, from a tally of errors."""
    return _mean(tally.rows @ np.abs(tally.logits), tally)


def _mean(off: Floats, tally: Tally) -> Floats:
    rows = tally.rows.sum(axis=1)
    return np.divide(off, rows, out=np.full_like(off, np.nan), where=rows > 0)


MAE = PointwiseMetric("mae", "MAE", "lower", mae)
MAE_OF_ERRORS = PointwiseMetric("mae", "MAE", "lower", mae_of_errors)
