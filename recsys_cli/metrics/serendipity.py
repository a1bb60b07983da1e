"""Serendipity: how much of what was shown is right, and not what everybody would have been shown?"""

from __future__ import annotations

from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats


def serendipity(lists: Recommended, k: int) -> Floats:
    """Return the hits in the first k places that popularity does not have in its first k for this user, over k; shape (U,).

    Ge, Delgado-Battenfeld and Jannach (RecSys 2010), with popularity as the primitive recommender. Popularity itself has 0.
    """
    unexpected = lists.hits[:, :k] & (lists.by_popularity[:, :k] >= k)
    return unexpected.sum(axis=1) / k


SERENDIPITY = ListMetric("serendipity", "serendipity", "higher", serendipity)
