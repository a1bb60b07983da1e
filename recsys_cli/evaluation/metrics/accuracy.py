"""Accuracy: how often the more probable label is the right one."""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally


def accuracy(tally: Tally) -> Floats:
    """Return the share of right rows when a probability of 0.5 or more is read as positive."""
    right = np.where(tally.logits >= 0, tally.positive, tally.negative).sum(axis=1)
    rows = tally.rows.sum(axis=1)
    return np.divide(right, rows, out=np.full_like(right, np.nan), where=rows > 0)


ACCURACY = PointwiseMetric("accuracy", "accuracy", "higher", accuracy)
