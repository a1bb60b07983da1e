"""MAE: mean absolute error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import ByRow, Influence, PointwiseMetric, mean_influence, mean_of
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def mae(counts: ScoreCounts) -> float:
    """Return the mean |probability - label|. Not a proper score: it favors probabilities of 0 and 1."""
    return mean_of(*_off(counts), counts)


def mae_of_errors(counts: ScoreCounts) -> float:
    """Return the mean absolute error in the units of the label, from counts of errors."""
    return mean_of(*_off_by(counts), counts)


def influence(counts: ScoreCounts) -> Influence:
    """Influence of `mae`."""
    return mean_influence(*_off(counts), counts)


def influence_of_errors(counts: ScoreCounts) -> Influence:
    """Influence of `mae_of_errors`."""
    return mean_influence(*_off_by(counts), counts)


def _off(counts: ScoreCounts) -> tuple[Floats, Floats]:
    return 1 - counts.probabilities, counts.probabilities


def _off_by(counts: ScoreCounts) -> tuple[Floats, Floats]:
    return np.abs(counts.logits), np.abs(counts.logits)


def _row_errors(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> Floats:
    return np.abs(np.subtract(predictions, labels, dtype=np.float64))


MAE = PointwiseMetric("mae", "MAE", "lower", mae, influence)
MAE_OF_ERRORS = PointwiseMetric(
    "mae", "MAE", "lower", mae_of_errors, influence_of_errors, by_row=ByRow(_row_errors), of_errors=True
)
