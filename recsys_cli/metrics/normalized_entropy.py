"""Normalized entropy: log loss over the entropy of the mean label, comparable between data sets."""

from __future__ import annotations

import math

import numpy as np

from recsys_cli.metrics import log_loss
from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import ScoreCounts


def normalized_entropy(counts: ScoreCounts) -> float:
    """Return log loss / entropy of the mean label (He et al., ADKDD 2014); 1 for a constant prediction."""
    mean = _mean_label(counts)
    return log_loss.log_loss(counts) / _entropy(mean) if 0 < mean < 1 else np.nan


def influence(counts: ScoreCounts) -> Influence:
    """Return the derivative by row weight, through the log loss and through the entropy."""
    mean, value = _mean_label(counts), normalized_entropy(counts)
    entropy, slope = _entropy(mean), math.log((1 - mean) / mean)
    of_loss = log_loss.influence(counts)
    of_mean = ((label - mean) / float(counts.rows.sum()) for label in (1, 0))
    positive, negative = (
        (loss - value * slope * label) / entropy for loss, label in zip(of_loss, of_mean, strict=True)
    )
    return positive, negative


def _mean_label(counts: ScoreCounts) -> float:
    rows = float(counts.rows.sum())
    return float(counts.positive.sum()) / rows if rows else 0.0


def _entropy(mean: float) -> float:
    return -(mean * math.log(mean) + (1 - mean) * math.log1p(-mean))


NORMALIZED_ENTROPY = PointwiseMetric("normalized_entropy", "normalized entropy", "lower", normalized_entropy, influence)
