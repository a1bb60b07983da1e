"""MAE: how far off is the prediction?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import ByRow, Influence, PointwiseMetric, mean_influence, mean_of
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def mae(tally: ScoreCounts) -> float:
    """Return the mean absolute difference of probability and label; it prefers sure answers to honest probabilities."""
    return mean_of(*_off(tally), tally)


def mae_of_errors(tally: ScoreCounts) -> float:
    """Return the mean absolute error, in the label's units, from a tally of errors."""
    return mean_of(*_off_by(tally), tally)


def influence(tally: ScoreCounts) -> Influence:
    """Return how far each row's difference is from the mean."""
    return mean_influence(*_off(tally), tally)


def influence_of_errors(tally: ScoreCounts) -> Influence:
    """Return the same from a tally of errors."""
    return mean_influence(*_off_by(tally), tally)


def _off(tally: ScoreCounts) -> tuple[Floats, Floats]:
    return 1 - tally.probabilities, tally.probabilities


def _off_by(tally: ScoreCounts) -> tuple[Floats, Floats]:
    return np.abs(tally.logits), np.abs(tally.logits)


def _row_errors(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> Floats:
    return np.abs(np.subtract(predictions, labels, dtype=np.float64))


MAE = PointwiseMetric("mae", "MAE", "lower", mae, influence)
MAE_OF_ERRORS = PointwiseMetric(
    "mae", "MAE", "lower", mae_of_errors, influence_of_errors, by_row=ByRow(_row_errors), of_errors=True
)
