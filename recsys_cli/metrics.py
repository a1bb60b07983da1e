"""What both training and evaluation measure of scores against labels, so that both report the same number; numpy only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def auc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return how often a positive row scores above a negative one, ties counted half: the area under the ROC curve.

    Exact, by the rank sum of Mann and Whitney (1947); takes O(N log N) time.

    Args:
        labels: 1 for positive rows, 0 for the others; shape (N,).
        scores: Higher means more likely positive, on any scale; shape (N,), not NaN.

    Returns:
        Between 0 and 1, or NaN where there is no positive or no negative row.
    """
    positive = np.asarray(labels) > 0.5
    num_rows, num_positive = positive.size, int(np.count_nonzero(positive))
    if num_positive in {0, num_rows}:
        return float("nan")
    values = np.asarray(scores)
    order = np.argsort(values)
    values = values[order]
    # Rows with the same score share the mean of their ranks: a group from start to end has ranks start + 1 to end.
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    ends = np.append(starts[1:], num_rows)
    positives = np.add.reduceat(positive[order], starts, dtype=np.int64)
    rank_sum = float(np.dot(positives, (starts + 1 + ends) / 2.0))
    return (rank_sum - num_positive * (num_positive + 1) / 2) / (num_positive * (num_rows - num_positive))


def log_loss(labels: npt.ArrayLike, logits: npt.ArrayLike) -> float:
    """Return the mean binary cross-entropy in nats, computed from logits so that confident rows do not overflow.

    Args:
        labels: 1 for positive rows, 0 for the others, or probabilities between; shape (N,).
        logits: Log odds of being positive; shape (N,).

    Returns:
        At least 0, or NaN for no rows.
    """
    target = np.asarray(labels, dtype=np.float64)
    logit = np.asarray(logits, dtype=np.float64)
    if target.size == 0:
        return float("nan")
    return float(np.mean(np.maximum(logit, 0) - logit * target + np.log1p(np.exp(-np.abs(logit)))))


def rmse(labels: npt.ArrayLike, predictions: npt.ArrayLike) -> float:
    """Return the root of the mean squared error, in the units of the labels.

    Args:
        labels: Numbers; shape (N,).
        predictions: What was predicted for them; shape (N,).

    Returns:
        At least 0, or NaN for no rows.
    """
    errors = np.asarray(predictions, dtype=np.float64) - np.asarray(labels, dtype=np.float64)
    return float(np.sqrt(np.mean(errors**2))) if errors.size else float("nan")
