"""Serendipity: share of relevant and unexpected items in the top k."""

from __future__ import annotations

from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats


def serendipity(lists: Recommended, k: int) -> Floats:
    """Return the hits in the top k outside the user's top k by popularity, over k; shape (U,).

    Ge, Delgado-Battenfeld and Jannach (RecSys 2010), with popularity as the primitive recommender.
    """
    unexpected = lists.hits[:, :k] & (lists.by_popularity[:, :k] >= k)
    return unexpected.sum(axis=1) / k


SERENDIPITY = ListMetric("serendipity", "serendipity", "higher", serendipity, in_unit=True)
