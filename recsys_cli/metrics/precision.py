"""Precision: how much of what was shown is relevant?"""

from __future__ import annotations

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def precision(ranked: Hits, k: int) -> Floats:
    """Return hits in the first k places over k, also where there are fewer recommendations; shape (U,)."""
    return ranked.hits[:, :k].sum(axis=1) / k


PRECISION = RankingMetric("precision", "precision", precision)
