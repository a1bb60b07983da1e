"""AUC: how often a positive row scores above a negative one."""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally


def auc(tally: Tally) -> Floats:
    """Return the area under the ROC curve, ties counted half: the same number as `recsys_cli.metrics.auc` of the rows."""
    below = np.cumsum(tally.negative, axis=1) - tally.negative / 2
    wins = (tally.positive * below).sum(axis=1)
    pairs = tally.positive.sum(axis=1) * tally.negative.sum(axis=1)
    return np.divide(wins, pairs, out=np.full_like(wins, np.nan), where=pairs > 0)


AUC = PointwiseMetric("auc", "AUC", "higher", auc, of_probabilities=False)
