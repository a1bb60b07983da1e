"""Calibration ratio: does the model promise as much as comes true?"""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally


def calibration(tally: Tally) -> Floats:
    """Return the mean prediction over the mean label; above 1 the model is too optimistic."""
    predicted = tally.rows @ tally.probabilities
    positive = tally.positive.sum(axis=1)
    return np.divide(predicted, positive, out=np.full_like(predicted, np.nan), where=positive > 0)


CALIBRATION = PointwiseMetric("calibration", "mean prediction / mean label", "one", calibration)
