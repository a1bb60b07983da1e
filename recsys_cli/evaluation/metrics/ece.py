"""Expected calibration error: how far probabilities are from frequencies, and the curve that shows where."""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally

BINS = 15


def ece(tally: Tally) -> Floats:
    """Return the mean over rows of |mean label - mean prediction| of their bin.

    Naeini, Cooper and Hauskrecht (2015), with bins of equal mass (Nixon et al., 2019); rows of one score share a bin.
    """
    rows, predicted, positive = _bins(tally)
    total = rows.sum(axis=1)
    error = np.abs(positive - predicted).sum(axis=1)
    return np.divide(error, total, out=np.full_like(error, np.nan), where=total > 0)


def reliability(tally: Tally) -> tuple[Floats, Floats]:
    """Return the mean prediction and the mean label of each bin that has rows, for the first weighting."""
    rows, predicted, positive = (values[0] for values in _bins(tally))
    there = rows > 0
    return predicted[there] / rows[there], positive[there] / rows[there]


def _bins(tally: Tally) -> tuple[Floats, Floats, Floats]:
    """Sum rows, predictions and labels by bin; each (R, BINS)."""
    num_weightings = len(tally.positive)
    place = tally.quantiles(BINS) + BINS * np.arange(num_weightings)[:, None]

    def total(weights: Floats) -> Floats:
        sums = np.bincount(place.ravel(), weights=weights.ravel(), minlength=num_weightings * BINS)
        return sums.astype(np.float64).reshape(num_weightings, BINS)

    return total(tally.rows), total(tally.rows * tally.probabilities), total(tally.positive)


ECE = PointwiseMetric("ece", "calibration error (ECE)", "lower", ece, biased=True)
