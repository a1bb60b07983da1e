"""MAP: mean over users of the average precision."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def average_precision(ranked: Hits, k: int) -> Floats:
    """Return the sum of the precision at each hit in the top k, over min(relevant, k); shape (U,)."""
    hits = ranked.hits[:, :k]
    at_hits = (np.cumsum(hits, axis=1) / np.arange(1, k + 1) * hits).sum(axis=1)
    return at_hits / np.minimum(ranked.num_relevant, k)


MAP = RankingMetric("map", "MAP", average_precision)
