"""Impression MRR: mean reciprocal rank of all clicked candidates of an impression, as MIND defines it; mean over impressions."""

from __future__ import annotations

from recsys_cli.metrics.metric import ImpressionMetric
from recsys_cli.metrics.ranked_impressions import RankedImpressions
from recsys_cli.metrics.score_counts import Floats


def impression_mrr(ranked: RankedImpressions, k: int | None = None) -> Floats:
    """Return the mean of 1 / rank over the clicked candidates, not only the first; shape (G,)."""
    del k
    return ranked.clicked_sum(1 / (ranked.rank + 1)) / ranked.num_clicked


IMPRESSION_MRR = ImpressionMetric("impression_mrr", "impression MRR", impression_mrr)
