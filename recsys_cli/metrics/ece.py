"""Expected calibration error: how far probabilities are from frequencies, and the curve that shows where."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from recsys_cli.metrics.metric import Influence, PointwiseMetric
from recsys_cli.metrics.score_counts import Floats, ScoreCounts

BINS = 15


def ece(tally: ScoreCounts) -> float:
    """Return the mean over rows of |mean label - mean prediction| of their bin.

    Naeini, Cooper and Hauskrecht (2015), with bins of equal mass (Nixon et al., 2019); rows of one score share a bin.
    """
    return float(np.abs(parts(tally)[1]).sum()) if len(tally.logits) else np.nan


def parts(tally: ScoreCounts) -> tuple[npt.NDArray[np.int64], Floats]:
    """Return the bin of each score, (G,), and what each bin's labels are above its predictions, over all rows, (BINS,)."""
    of_bin = tally.quantiles(BINS)
    above = tally.positive - tally.rows * tally.probabilities
    return of_bin, _totals(of_bin, above) / max(1.0, float(tally.rows.sum()))


def influence(tally: ScoreCounts) -> Influence:
    """Return what each row adds to the part of its bin."""
    rows = float(tally.rows.sum())
    return (1 - tally.probabilities) / rows, -tally.probabilities / rows


def reliability(tally: ScoreCounts) -> tuple[Floats, Floats]:
    """Return the mean prediction and the mean label of each bin that has rows."""
    of_bin = tally.quantiles(BINS)
    rows, predicted, positive = (
        _totals(of_bin, values) for values in (tally.rows, tally.rows * tally.probabilities, tally.positive)
    )
    there = rows > 0
    return predicted[there] / rows[there], positive[there] / rows[there]


def _totals(of_bin: npt.NDArray[np.int64], values: Floats) -> Floats:
    return np.bincount(of_bin, weights=values, minlength=BINS).astype(np.float64)


ECE = PointwiseMetric("ece", "calibration error (ECE)", "lower", ece, influence, parts=parts)
