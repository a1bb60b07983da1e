"""PR-AUC: how pure is what scores high? It says more than the AUC where positive rows are rare."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def pr_auc(tally: ScoreCounts) -> float:
    """Return the average precision: the precision at each score, weighted by the share of the positive rows that have it.

    The step function below the points of the precision-recall curve, as in scikit-learn; joining the points by lines would
    promise too much (Davis and Goadrich, 2006). A constant score has the share of positive rows.
    """
    positive, precision, _ = _from_above(tally)
    total = float(positive.sum())
    return float(precision @ positive) / total if total else np.nan


def influence(tally: ScoreCounts) -> Influence:
    """Return the derivative by each row's weight: its own precision, and what it does to the precision of lower scores."""
    positive, precision, called = _from_above(tally)
    total = float(positive.sum())
    value = float(precision @ positive) / total
    right, wrong = (_at_and_below(positive * change / called) for change in (1 - precision, precision))
    return ((precision + right - value) / total)[::-1], (-wrong / total)[::-1]


def _from_above(tally: ScoreCounts) -> tuple[Floats, Floats, Floats]:
    """Return positive rows, the precision down to each score and the rows down to it, the highest score first; each (G,)."""
    positive, called = tally.positive[::-1], np.cumsum(tally.rows[::-1])
    return positive, np.cumsum(positive) / called, called


def _at_and_below(values: Floats) -> Floats:
    return np.cumsum(values[::-1])[::-1]


PR_AUC = PointwiseMetric("pr_auc", "PR-AUC", "higher", pr_auc, influence, of_probabilities=False)
