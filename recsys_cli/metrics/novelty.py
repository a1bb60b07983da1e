"""Novelty: how little known is what is recommended?"""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats


def novelty(lists: Recommended, k: int) -> Floats:
    """Return the mean self-information, in bits, of the items in each user's first k places; shape (U,).

    An item with a share p of the rows of train has -log2 p: Zhou et al. (PNAS 2010). One without a row counts as if it had one.
    """
    return mean_shown(lists, k, -np.log2(np.maximum(lists.catalogue.counts, 1) / lists.catalogue.num_rows))


def mean_shown(lists: Recommended, k: int, values: Floats) -> Floats:
    """Return the mean of the values (I,) of what each user is shown, NaN for a user who is shown nothing; shape (U,)."""
    places = lists.places[:, :k]
    there = places >= 0
    total = np.where(there, values[places], 0.0).sum(axis=1)
    number = there.sum(axis=1)
    return np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)


NOVELTY = ListMetric("novelty", "novelty (bits)", None, novelty)
