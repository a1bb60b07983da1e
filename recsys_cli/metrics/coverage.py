"""Catalog coverage: share of the catalog in any user's top k."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats


def coverage(lists: Recommended, k: int) -> Floats:
    """Return the share of the candidates in at least one user's top k; shape ().

    Ge, Delgado-Battenfeld and Jannach (RecSys 2010). Grows with the number of users.
    """
    return np.asarray(np.count_nonzero(times_shown(lists, k)) / max(1, len(lists.catalog.counts)))


def times_shown(lists: Recommended, k: int) -> Floats:
    """Return the number of users with each candidate in their top k; shape (I,)."""
    candidates = lists.candidates[:, :k]
    return np.bincount(candidates[candidates >= 0], minlength=len(lists.catalog.counts)).astype(np.float64)


COVERAGE = ListMetric("coverage", "coverage", "higher", coverage, in_unit=True)
