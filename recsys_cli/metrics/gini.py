"""Gini coefficient: inequality of exposure over the catalog."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.coverage import times_shown
from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats


def gini(lists: Recommended, k: int) -> Floats:
    """Return the Gini coefficient of the candidates' counts in the top k of all users; in [0, 1], lower is better; shape ().

    0 for equal exposure, near 1 for concentration on few items. Fleder and Hosanagar (2009).
    """
    shown = np.sort(times_shown(lists, k))
    size, total = len(shown), shown.sum()
    if not total:
        return np.asarray(np.nan)
    return np.asarray(((2 * np.arange(1, size + 1) - size - 1) @ shown) / (size * total))


GINI = ListMetric("gini", "Gini", "lower", gini, in_unit=True)
