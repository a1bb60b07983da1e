"""Hit rate (HR): share of users with a relevant item in the top k."""

from __future__ import annotations

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def hr(ranked: Hits, k: int) -> Floats:
    """Return 1 for users with a hit in the top k, else 0; shape (U,)."""
    return ranked.hits[:, :k].any(axis=1).astype(float)


HR = RankingMetric("hr", "HR", hr)
