"""Gini: how unevenly is attention dealt to the catalogue?"""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.coverage import times_shown
from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats


def gini(lists: Recommended, k: int) -> Floats:
    """Return the Gini coefficient of how often each candidate stands in the first k places; shape ().

    0 where all are shown equally often, near 1 where a few are all that is shown. Fleder and Hosanagar (2009).
    """
    shown = np.sort(times_shown(lists, k))
    size, total = len(shown), shown.sum()
    if not total:
        return np.asarray(np.nan)
    return np.asarray(((2 * np.arange(1, size + 1) - size - 1) @ shown) / (size * total))


GINI = ListMetric("gini", "Gini", "lower", gini)
