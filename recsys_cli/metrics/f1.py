"""F1: harmonic mean of precision and recall at a threshold of 0.5."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import ScoreCounts


def f1(counts: ScoreCounts) -> float:
    """Return 2 TP / (2 TP + FP + FN), with probabilities of 0.5 and more as positive."""
    total = _predicted_plus_actual(counts)
    return 2 * float(counts.positive[counts.logits >= 0].sum()) / total if total else np.nan


def influence(counts: ScoreCounts) -> Influence:
    """Return the derivative of the ratio by each row's weight."""
    predicted, value, total = counts.logits >= 0, f1(counts), _predicted_plus_actual(counts)
    return np.where(predicted, 2 - 2 * value, -value) / total, np.where(predicted, -value, 0.0) / total


def _predicted_plus_actual(counts: ScoreCounts) -> float:
    return float(counts.rows[counts.logits >= 0].sum() + counts.positive.sum())


F1 = PointwiseMetric("f1", "F1", "higher", f1, influence)
