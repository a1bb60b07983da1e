"""Log loss: mean binary cross-entropy of predicted probabilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import ByRow, Influence, PointwiseMetric, mean_influence, mean_of
from recsys_cli.metrics.score_counts import Floats, ScoreCounts


def log_loss(counts: ScoreCounts) -> float:
    """Return the mean binary cross-entropy in nats, from logits for stability."""
    return mean_of(*losses(counts), counts)


def losses(counts: ScoreCounts) -> tuple[Floats, Floats]:
    """Return the loss of a positive and of a negative row of each score; each (G,)."""
    if_positive = row_losses(np.ones(1), counts.logits)
    return if_positive, if_positive + counts.logits


def row_losses(labels: npt.ArrayLike, logits: npt.ArrayLike) -> Floats:
    """Return the binary cross-entropy of each row; labels (N,), logits (N,)."""
    wide = np.asarray(logits, dtype=np.float64)
    return np.logaddexp(0, np.where(np.asarray(labels) != 0, -wide, wide))


def influence(counts: ScoreCounts) -> Influence:
    """Influence of `log_loss`."""
    return mean_influence(*losses(counts), counts)


LOG_LOSS = PointwiseMetric("log_loss", "log loss", "lower", log_loss, influence, by_row=ByRow(row_losses))
