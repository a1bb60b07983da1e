"""Impression AUC: AUC within each impression, ties as 1/2; mean over impressions."""

from __future__ import annotations

from recsys_cli.metrics.metric import ImpressionMetric
from recsys_cli.metrics.ranked_impressions import RankedImpressions
from recsys_cli.metrics.score_counts import Floats


def impression_auc(ranked: RankedImpressions, k: int | None = None) -> Floats:
    """Return the share of (clicked, other) pairs in the right order, by the U statistic; shape (G,)."""
    del k
    clicked, candidates = ranked.num_clicked, ranked.num_candidates
    below = clicked * (candidates - 1) - ranked.clicked_sum(ranked.rank)
    return (below - clicked * (clicked - 1) / 2) / (clicked * (candidates - clicked))


IMPRESSION_AUC = ImpressionMetric("impression_auc", "impression AUC", impression_auc)
