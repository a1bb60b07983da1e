"""Log loss: how surprising the labels are, given the scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import ByRow, Influence, PointwiseMetric, mean_influence, mean_of
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def log_loss(tally: ScoreCounts) -> float:
    """Return the mean binary cross-entropy in nats, from logits, so that confident rows do not overflow."""
    return mean_of(*losses(tally), tally)


def losses(tally: ScoreCounts) -> tuple[Floats, Floats]:
    """Return the loss of a row of each score if its label is 1, and if it is 0; each (G,)."""
    if_positive = row_losses(np.ones(1), tally.logits)
    return if_positive, if_positive + tally.logits


def row_losses(labels: npt.ArrayLike, logits: npt.ArrayLike) -> Floats:
    """Return the binary cross-entropy of each row; labels (N,), logits (N,)."""
    wide = np.asarray(logits, dtype=np.float64)
    return np.logaddexp(0, np.where(np.asarray(labels) != 0, -wide, wide))


def influence(tally: ScoreCounts) -> Influence:
    """Return how far each row's loss is from the mean."""
    return mean_influence(*losses(tally), tally)


LOG_LOSS = PointwiseMetric("log_loss", "log loss", "lower", log_loss, influence, by_row=ByRow(row_losses))
