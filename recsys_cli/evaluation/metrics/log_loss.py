"""Log loss: how surprising the labels are, given the scores."""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally


def log_loss(tally: Tally) -> Floats:
    """Return the mean binary cross-entropy in nats: the same number as `recsys_cli.metrics.log_loss` of the rows."""
    loss_if_positive = np.logaddexp(0, -tally.logits)
    total = tally.positive @ loss_if_positive + tally.negative @ (loss_if_positive + tally.logits)
    rows = tally.rows.sum(axis=1)
    return np.divide(total, rows, out=np.full_like(total, np.nan), where=rows > 0)


LOG_LOSS = PointwiseMetric("log_loss", "log loss", "lower", log_loss)
