"""Log loss: how surprising the labels are, given the scores."""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import Influence, PointwiseMetric, mean_influence, mean_of
from recsys_cli.evaluation.tally import Floats, Tally


def log_loss(tally: Tally) -> float:
    """Return the mean binary cross-entropy in nats: the same number as `recsys_cli.metrics.log_loss` of the rows."""
    return mean_of(*losses(tally), tally)


def losses(tally: Tally) -> tuple[Floats, Floats]:
    """Return the loss of a row of each score if its label is 1, and if it is 0; each (G,)."""
    if_positive = np.logaddexp(0, -tally.logits)
    return if_positive, if_positive + tally.logits


def influence(tally: Tally) -> Influence:
    """Return how far each row's loss is from the mean."""
    return mean_influence(*losses(tally), tally)


LOG_LOSS = PointwiseMetric("log_loss", "log loss", "lower", log_loss, influence)
