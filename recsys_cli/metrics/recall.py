"""Recall: how much of what there was to find was found?"""

from __future__ import annotations

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def recall(ranked: Hits, k: int) -> Floats:
    """Return hits in the first k places over all that is relevant, not capped at k; shape (U,)."""
    return ranked.hits[:, :k].sum(axis=1) / ranked.num_relevant


RECALL = RankingMetric("recall", "recall", recall)
