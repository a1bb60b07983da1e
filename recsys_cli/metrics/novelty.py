"""Novelty: mean self-information of the recommended items."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats


def novelty(lists: Recommended, k: int) -> Floats:
    """Return the mean self-information of the items in each user's top k, in bits; shape (U,).

    -log2 p for an item with a share p of the train interactions (Zhou et al., PNAS 2010); items without interactions
    count as items with one. No direction: novelty is a trade-off.
    """
    return mean_shown(lists, k, -np.log2(np.maximum(lists.catalog.counts, 1) / lists.catalog.num_rows))


def mean_shown(lists: Recommended, k: int, values: Floats) -> Floats:
    """Return the mean over each user's top k of item values (I,); NaN for an empty ranking; shape (U,)."""
    candidates = lists.candidates[:, :k]
    filled = candidates >= 0
    total = np.where(filled, values[candidates], 0.0).sum(axis=1)
    number = filled.sum(axis=1)
    return np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)


NOVELTY = ListMetric("novelty", "novelty (bits)", None, novelty)
