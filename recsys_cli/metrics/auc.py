"""AUC: probability that a positive row scores above a negative row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import ByRow, Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def auc_of_groups(positive: Floats, negative: Floats, starts: npt.NDArray[np.integer]) -> Floats:
    """Return the area under the ROC curve within each of G groups, ties as 1/2; NaN for groups of one class.

    Exact, by the U statistic of Mann and Whitney (1947). `positive` and `negative` (S,) are rows of each score,
    ascending within a group, and `starts` (G,) each group's first score.
    """
    positives, negatives = np.add.reduceat(positive, starts), np.add.reduceat(negative, starts)
    earlier = np.cumsum(negatives) - negatives
    wins = np.add.reduceat(positive * _below(negative), starts) - positives * earlier
    pairs = positives * negatives
    return np.divide(wins, pairs, out=np.full_like(wins, np.nan), where=pairs > 0)


def auc(counts: ScoreCounts) -> float:
    """Return the area under the ROC curve, ties as 1/2; NaN with rows of one class only."""
    if not len(counts.logits):
        return np.nan
    return float(auc_of_groups(counts.positive, counts.negative, np.zeros(1, np.int64))[0])


def placements(counts: ScoreCounts) -> tuple[Floats, Floats]:
    """Return the placement of a positive and of a negative row of each score; each (G,).

    A placement is the share of correctly ordered rows of the other class. Its mean over either class is the AUC
    (DeLong, DeLong and Clarke-Pearson, 1988).
    """
    return _below(counts.negative) / counts.negative.sum(), 1 - _below(counts.positive) / counts.positive.sum()


def influence(counts: ScoreCounts) -> Influence:
    """Return the difference of each row's placement from the AUC."""
    value, (of_positive, of_negative) = auc(counts), placements(counts)
    return (of_positive - value) / float(counts.positive.sum()), (of_negative - value) / float(counts.negative.sum())


def row_placements(labels: npt.ArrayLike, scores: npt.ArrayLike) -> Floats:
    """Return the placement of each row (N,); labels of both classes."""
    is_positive = np.asarray(labels) != 0
    counts, group = ScoreCounts.grouped(is_positive.astype(np.float32), scores)
    of_positive, of_negative = placements(counts)
    return np.where(is_positive, of_positive[group], of_negative[group])


def _below(counts: Floats) -> Floats:
    return np.cumsum(counts) - counts / 2


AUC = PointwiseMetric(
    "auc", "AUC", "higher", auc, influence, of_probabilities=False, by_row=ByRow(row_placements, "class means")
)
