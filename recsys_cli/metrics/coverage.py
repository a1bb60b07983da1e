"""Coverage: how much of the catalogue does anybody get to see?"""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats


def coverage(lists: Recommended, k: int) -> Floats:
    """Return the share of the candidates that stand in at least one user's first k places; shape ().

    The catalogue coverage of Ge, Delgado-Battenfeld and Jannach (RecSys 2010). It grows with the number of users.
    """
    return np.asarray(np.count_nonzero(times_shown(lists, k)) / max(1, len(lists.catalogue.counts)))


def times_shown(lists: Recommended, k: int) -> Floats:
    """Return how many users have each candidate in their first k places; shape (I,)."""
    places = lists.places[:, :k]
    return np.bincount(places[places >= 0], minlength=len(lists.catalogue.counts)).astype(np.float64)


COVERAGE = ListMetric("coverage", "coverage", "higher", coverage)
