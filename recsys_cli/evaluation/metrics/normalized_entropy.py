"""Normalised entropy: the log loss beside that of knowing the mean label alone, so that data with other means compare."""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.log_loss import log_loss
from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally


def normalized_entropy(tally: Tally) -> Floats:
    """Return the log loss over the entropy of the mean label; below 1 the scores say something. He et al. (ADKDD 2014)."""
    rows = tally.rows.sum(axis=1)
    mean = np.divide(tally.positive.sum(axis=1), rows, out=np.zeros_like(rows), where=rows > 0)
    mixed = (mean > 0) & (mean < 1)
    inside = np.where(mixed, mean, 0.5)
    entropy = -(inside * np.log(inside) + (1 - inside) * np.log1p(-inside))
    return np.where(mixed, log_loss(tally) / entropy, np.nan)


NORMALIZED_ENTROPY = PointwiseMetric("normalized_entropy", "normalised entropy", "lower", normalized_entropy)
