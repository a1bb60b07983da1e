"""Precision: relevant share of the top k."""

from __future__ import annotations

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def precision(ranked: Hits, k: int) -> Floats:
    """Return the hits in the top k over k, for shorter rankings as well; shape (U,)."""
    return ranked.hits[:, :k].sum(axis=1) / k


PRECISION = RankingMetric("precision", "precision", precision)
