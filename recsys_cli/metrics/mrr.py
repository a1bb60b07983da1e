"""MRR: mean reciprocal rank of the first hit."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def mrr(ranked: Hits, k: int) -> Floats:
    """Return 1 / rank of the first hit, 0 without a hit in the top k; shape (U,)."""
    hits = ranked.hits[:, :k]
    return np.where(hits.any(axis=1), 1 / (hits.argmax(axis=1) + 1), 0.0)


MRR = RankingMetric("mrr", "MRR", mrr)
