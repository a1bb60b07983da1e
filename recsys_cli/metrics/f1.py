"""F1: how right are those that are called positive, and how complete?"""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import ScoreCounts


def f1(tally: ScoreCounts) -> float:
    """Return the harmonic mean of precision and recall when a probability of 0.5 or more is read as positive."""
    either = _called_or_positive(tally)
    return 2 * float(tally.positive[tally.logits >= 0].sum()) / either if either else np.nan


def influence(tally: ScoreCounts) -> Influence:
    """Return the derivative of the ratio by each row's weight."""
    called, value, either = tally.logits >= 0, f1(tally), _called_or_positive(tally)
    return np.where(called, 2 - 2 * value, -value) / either, np.where(called, -value, 0.0) / either


def _called_or_positive(tally: ScoreCounts) -> float:
    return float(tally.rows[tally.logits >= 0].sum() + tally.positive.sum())


F1 = PointwiseMetric("f1", "F1", "higher", f1, influence)
