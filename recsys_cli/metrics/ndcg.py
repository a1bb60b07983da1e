"""NDCG: normalized discounted cumulative gain, with more weight on higher ranks."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def ndcg(ranked: Hits, k: int) -> Floats:
    """Return the discounted cumulative gain of the top k over that of the ideal ranking; shape (U,).

    Järvelin and Kekäläinen (2002): binary gain, discount log2(rank + 1), min(relevant, k) hits on top of the ideal.
    """
    discounts = 1 / np.log2(np.arange(2, k + 2))
    best = np.cumsum(discounts)[np.minimum(ranked.num_relevant, k) - 1]
    return (ranked.hits[:, :k] @ discounts) / best


NDCG = RankingMetric("ndcg", "NDCG", ndcg)
