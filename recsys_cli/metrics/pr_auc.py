"""PR-AUC: average precision, more informative than the AUC for rare positives."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def pr_auc(counts: ScoreCounts) -> float:
    """Return the average precision: the precision at each score, weighted by its share of the positives.

    The step function below the precision-recall curve, as in scikit-learn; linear interpolation is too optimistic
    (Davis and Goadrich, 2006). A constant score has the share of positives.
    """
    positive, precision, _ = _from_above(counts)
    total = float(positive.sum())
    return float(precision @ positive) / total if total else np.nan


def influence(counts: ScoreCounts) -> Influence:
    """Return the derivative by row weight: the row's own precision, and its effect on the precision of lower scores."""
    positive, precision, predicted = _from_above(counts)
    total = float(positive.sum())
    value = float(precision @ positive) / total
    right, wrong = (_at_and_below(positive * change / predicted) for change in (1 - precision, precision))
    return ((precision + right - value) / total)[::-1], (-wrong / total)[::-1]


def _from_above(counts: ScoreCounts) -> tuple[Floats, Floats, Floats]:
    """Return positives, precision and number of rows down to each score, from the highest score; each (G,)."""
    positive, predicted = counts.positive[::-1], np.cumsum(counts.rows[::-1])
    return positive, np.cumsum(positive) / predicted, predicted


def _at_and_below(values: Floats) -> Floats:
    return np.cumsum(values[::-1])[::-1]


PR_AUC = PointwiseMetric("pr_auc", "PR-AUC", "higher", pr_auc, influence, of_probabilities=False)
