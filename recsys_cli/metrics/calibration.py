"""Calibration ratio: does the model promise as much as comes true?"""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import ScoreCounts


def calibration(tally: ScoreCounts) -> float:
    """Return the mean prediction over the mean label; above 1 the model is too optimistic."""
    positive = float(tally.positive.sum())
    return float(tally.rows @ tally.probabilities) / positive if positive else np.nan


def influence(tally: ScoreCounts) -> Influence:
    """Return the derivative of the ratio by each row's weight."""
    positive, value = float(tally.positive.sum()), calibration(tally)
    return (tally.probabilities - value) / positive, tally.probabilities / positive


CALIBRATION = PointwiseMetric("calibration", "mean prediction / mean label", "one", calibration, influence)
