"""Average recommendation popularity (ARP): mean popularity of the recommended items."""

from __future__ import annotations

from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.novelty import mean_shown
from recsys_cli.metrics.score_counts import Floats


def arp(lists: Recommended, k: int) -> Floats:
    """Return the mean number of train interactions of each user's top-k items; shape (U,).

    Yin et al. (VLDB 2012). No direction: popularity bias is a trade-off.
    """
    return mean_shown(lists, k, lists.catalog.counts.astype(float))


ARP = ListMetric("arp", "mean popularity (ARP)", None, arp)
