"""Popularity bias: how popular is what is recommended?"""

from __future__ import annotations

from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.novelty import mean_shown
from recsys_cli.metrics.score_counts import Floats


def arp(lists: Recommended, k: int) -> Floats:
    """Return the mean number of train rows of the items in each user's first k places; shape (U,).

    The average recommendation popularity of Yin et al. (VLDB 2012).
    """
    return mean_shown(lists, k, lists.catalogue.counts.astype(float))


ARP = ListMetric("arp", "mean popularity (ARP)", None, arp)
