"""Accuracy: share of correct predictions at a threshold of 0.5."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Influence, PointwiseMetric, mean_influence, mean_of
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def accuracy(counts: ScoreCounts) -> float:
    """Return the share of correct predictions, with probabilities of 0.5 and more as positive."""
    return mean_of(*_correct(counts), counts)


def influence(counts: ScoreCounts) -> Influence:
    """Influence of `accuracy`."""
    return mean_influence(*_correct(counts), counts)


def _correct(counts: ScoreCounts) -> tuple[Floats, Floats]:
    predicted: Floats = np.where(counts.logits >= 0, 1.0, 0.0)
    return predicted, 1.0 - predicted


ACCURACY = PointwiseMetric("accuracy", "accuracy", "higher", accuracy, influence)
