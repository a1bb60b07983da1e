"""Curves of the report, thinned to the resolution of a plot."""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.result import Curve
from recsys_cli.metrics.labels import reliability
from recsys_cli.metrics.metric import Floats, ScoreCounts

POINTS = 200


def roc_curve(tally: ScoreCounts) -> Curve:
    """Return true over false positive rate for falling thresholds, (0, 0) to (1, 1); empty for rows of one class."""
    small = tally.compressed(POINTS)
    positive, negative = small.positive[::-1], small.negative[::-1]
    if not positive.sum() or not negative.sum():
        return Curve(x=(), y=())
    return _curve(_rates(negative), _rates(positive))


def precision_recall_curve(tally: ScoreCounts) -> Curve:
    """Return precision over recall for falling thresholds; empty for rows of one class.

    It starts at recall 0 with the precision of the highest score: a random part of tied rows has it on average.
    """
    small = tally.compressed(POINTS)
    positive, negative = small.positive[::-1], small.negative[::-1]
    if not positive.sum() or not negative.sum():
        return Curve(x=(), y=())
    precision = np.cumsum(positive) / np.cumsum(positive + negative)
    return _curve(_rates(positive), np.append(precision[0], precision))


def reliability_curve(tally: ScoreCounts) -> Curve:
    """Return the mean label over the mean prediction of bins of equal mass."""
    return _curve(*reliability(tally))


def _rates(counts: Floats) -> Floats:
    return np.append(0.0, np.cumsum(counts) / counts.sum())


def _curve(x: Floats, y: Floats) -> Curve:
    return Curve(x=tuple(x.round(6).tolist()), y=tuple(y.round(6).tolist()))
