"""NDCG: hits count more the higher they stand."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def ndcg(ranked: Hits, k: int) -> Floats:
    """Return the discounted gain of the first k places over the best that they could hold; shape (U,).

    Järvelin and Kekäläinen (2002) with binary gain and discount log2(place + 1); the best is min(relevant, k) hits on top.
    """
    discounts = 1 / np.log2(np.arange(2, k + 2))
    best = np.cumsum(discounts)[np.minimum(ranked.num_relevant, k) - 1]
    return (ranked.hits[:, :k] @ discounts) / best


NDCG = RankingMetric("ndcg", "NDCG", ndcg)
