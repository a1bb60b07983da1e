"""Accuracy: how often the more probable label is the right one."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Influence, PointwiseMetric, mean_influence, mean_of
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def accuracy(tally: ScoreCounts) -> float:
    """Return the share of right rows when a probability of 0.5 or more is read as positive."""
    return mean_of(*_right(tally), tally)


def influence(tally: ScoreCounts) -> Influence:
    """Return how far each row's being right is from the mean."""
    return mean_influence(*_right(tally), tally)


def _right(tally: ScoreCounts) -> tuple[Floats, Floats]:
    called: Floats = np.where(tally.logits >= 0, 1.0, 0.0)
    return called, 1.0 - called


ACCURACY = PointwiseMetric("accuracy", "accuracy", "higher", accuracy, influence)
