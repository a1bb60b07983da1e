"""Impression NDCG@5 and @10: NDCG of the clicked candidates of an impression; mean over impressions."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import ImpressionMetric
from recsys_cli.metrics.ranked_impressions import RankedImpressions
from recsys_cli.metrics.score_counts import Floats


def impression_ndcg(ranked: RankedImpressions, k: int | None = None) -> Floats:
    """Return the discounted gain of the first k candidates over the best possible one; shape (G,)."""
    assert k is not None
    gains = np.where(ranked.rank < k, 1 / np.log2(ranked.rank + 2), 0.0)
    best = np.cumsum(1 / np.log2(np.arange(k) + 2))
    return ranked.clicked_sum(gains) / best[np.minimum(ranked.num_clicked, k).astype(np.int64) - 1]


IMPRESSION_NDCG = ImpressionMetric("impression_ndcg", "impression NDCG", impression_ndcg, cut_offs=(5, 10))
