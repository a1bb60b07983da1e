"""Recall: share of a user's relevant items found in the top k."""

from __future__ import annotations

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def recall(ranked: Hits, k: int) -> Floats:
    """Return the hits in the top k over all relevant items, not capped at k; shape (U,)."""
    return ranked.hits[:, :k].sum(axis=1) / ranked.num_relevant


RECALL = RankingMetric("recall", "recall", recall)
