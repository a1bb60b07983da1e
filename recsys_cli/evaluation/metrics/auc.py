"""AUC: how often a positive row scores above a negative one."""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import Influence, PointwiseMetric
from recsys_cli.evaluation.tally import Tally


def auc(tally: Tally) -> float:
    """Return the area under the ROC curve, ties counted half: the same number as `recsys_cli.metrics.auc` of the rows."""
    below = np.cumsum(tally.negative) - tally.negative / 2
    pairs = float(tally.positive.sum() * tally.negative.sum())
    return float(tally.positive @ below) / pairs if pairs else np.nan


def influence(tally: Tally) -> Influence:
    """Return how far each row's placement is from the AUC (DeLong, DeLong and Clarke-Pearson, 1988)."""
    value, positive, negative = auc(tally), float(tally.positive.sum()), float(tally.negative.sum())
    below = (np.cumsum(tally.negative) - tally.negative / 2) / negative
    above = 1 - (np.cumsum(tally.positive) - tally.positive / 2) / positive
    return (below - value) / positive, (above - value) / negative


AUC = PointwiseMetric("auc", "AUC", "higher", auc, influence, of_probabilities=False)
