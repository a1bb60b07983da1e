"""Expected calibration error (ECE): mean difference of predicted and observed frequencies over bins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import Floats, ScoreCounts

BINS = 15


def ece(counts: ScoreCounts) -> float:
    """Return the mean over rows of |mean label - mean prediction| of their bin.

    Naeini, Cooper and Hauskrecht (2015), with bins of equal mass (Nixon et al., 2019); equal scores share a bin.
    """
    return float(np.abs(parts(counts)[1]).sum()) if len(counts.logits) else np.nan


def parts(counts: ScoreCounts) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the bin of each score, (G,), and each bin's sum of label - prediction, over the number of rows, (BINS,)."""
    of_bin = counts.quantiles(BINS)
    above = counts.positive - counts.rows * counts.probabilities
    return of_bin, _totals(of_bin, above) / max(1.0, float(counts.rows.sum()))


def influence(counts: ScoreCounts) -> Influence:
    """Return the contribution of each row to the part of its bin."""
    rows = float(counts.rows.sum())
    return (1 - counts.probabilities) / rows, -counts.probabilities / rows


def reliability(counts: ScoreCounts) -> tuple[Floats, Floats]:
    """Return the mean prediction and the mean label of each non-empty bin."""
    of_bin = counts.quantiles(BINS)
    rows, predicted, positive = (
        _totals(of_bin, values) for values in (counts.rows, counts.rows * counts.probabilities, counts.positive)
    )
    filled = rows > 0
    return predicted[filled] / rows[filled], positive[filled] / rows[filled]


def _totals(of_bin: npt.NDArray[np.int64], values: Floats) -> Floats:
    return np.bincount(of_bin, weights=values, minlength=BINS).astype(np.float64)


ECE = PointwiseMetric("ece", "calibration error (ECE)", "lower", ece, influence, parts=parts)
