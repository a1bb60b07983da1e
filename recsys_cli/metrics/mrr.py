"""Mean reciprocal rank: how far down is the first hit?"""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def mrr(ranked: Hits, k: int) -> Floats:
    """Return 1 over the place of the first hit, 0 where there is none in the first k places; shape (U,)."""
    hits = ranked.hits[:, :k]
    return np.where(hits.any(axis=1), 1 / (hits.argmax(axis=1) + 1), 0.0)


MRR = RankingMetric("mrr", "MRR", mrr)
