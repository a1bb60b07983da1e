"""F1: how right are those that are called positive, and how complete?"""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.metrics.metric import PointwiseMetric
from recsys_cli.evaluation.tally import Floats, Tally


def f1(tally: Tally) -> Floats:
    """Return the harmonic mean of precision and recall when a probability of 0.5 or more is read as positive."""
    called = tally.logits >= 0
    right = tally.positive[:, called].sum(axis=1)
    either = tally.rows[:, called].sum(axis=1) + tally.positive.sum(axis=1)
    return np.divide(2 * right, either, out=np.full_like(either, np.nan), where=either > 0)


F1 = PointwiseMetric("f1", "F1", "higher", f1)
