"""PR-AUC: how pure is what scores high? It says more than the AUC where positive rows are rare."""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally


def pr_auc(tally: Tally) -> Floats:
    """Return the average precision: the precision at each score, weighted by the share of the positive rows that have it.

    The step function below the points of the precision-recall curve, as in scikit-learn; joining the points by lines would
    promise too much (Davis and Goadrich, 2006). A constant score has the share of positive rows.
    """
    positive, rows = tally.positive[:, ::-1], tally.rows[:, ::-1]
    found, called = np.cumsum(positive, axis=1), np.cumsum(rows, axis=1)
    precision = np.divide(found, called, out=np.zeros_like(found), where=called > 0)
    total = positive.sum(axis=1)
    return np.divide((precision * positive).sum(axis=1), total, out=np.full_like(total, np.nan), where=total > 0)


PR_AUC = PointwiseMetric("pr_auc", "PR-AUC", "higher", pr_auc, of_probabilities=False)
