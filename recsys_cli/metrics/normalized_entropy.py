"""Normalised entropy: the log loss beside that of knowing the mean label alone, so that data with other means compare."""

from __future__ import annotations

import math

import numpy as np

from recsys_cli.metrics import log_loss
from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import ScoreCounts


def normalized_entropy(tally: ScoreCounts) -> float:
    """Return the log loss over the entropy of the mean label; below 1 the scores say something. He et al. (ADKDD 2014)."""
    mean = _mean_label(tally)
    return log_loss.log_loss(tally) / _entropy(mean) if 0 < mean < 1 else np.nan


def influence(tally: ScoreCounts) -> Influence:
    """Return the derivative by each row's weight, of the log loss and of the entropy."""
    mean, value = _mean_label(tally), normalized_entropy(tally)
    entropy, slope = _entropy(mean), math.log((1 - mean) / mean)
    of_loss = log_loss.influence(tally)
    of_mean = ((label - mean) / float(tally.rows.sum()) for label in (1, 0))
    positive, negative = (
        (loss - value * slope * label) / entropy for loss, label in zip(of_loss, of_mean, strict=True)
    )
    return positive, negative


def _mean_label(tally: ScoreCounts) -> float:
    rows = float(tally.rows.sum())
    return float(tally.positive.sum()) / rows if rows else 0.0


def _entropy(mean: float) -> float:
    return -(mean * math.log(mean) + (1 - mean) * math.log1p(-mean))


NORMALIZED_ENTROPY = PointwiseMetric("normalized_entropy", "normalised entropy", "lower", normalized_entropy, influence)
