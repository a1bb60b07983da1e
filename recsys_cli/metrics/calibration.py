"""Calibration ratio: mean prediction over mean label."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import ScoreCounts


def calibration(counts: ScoreCounts) -> float:
    """Return mean prediction / mean label; overestimation above 1; NaN without positive rows."""
    positive = float(counts.positive.sum())
    return float(counts.rows @ counts.probabilities) / positive if positive else np.nan


def influence(counts: ScoreCounts) -> Influence:
    """Return the derivative of the ratio by each row's weight."""
    positive, value = float(counts.positive.sum()), calibration(counts)
    return (counts.probabilities - value) / positive, counts.probabilities / positive


CALIBRATION = PointwiseMetric("calibration", "mean prediction / mean label", "one", calibration, influence)
