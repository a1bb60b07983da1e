"""Capped recall: recall over at most k relevant items, as in the evaluation of Mult-VAE."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import Hits, RankingMetric
from recsys_cli.metrics.score_counts import Floats


def capped_recall(ranked: Hits, k: int) -> Floats:
    """Return the hits in the top k over min(k, relevant items); shape (U,).

    Liang et al., "Variational Autoencoders for Collaborative Filtering" (2018), equation 10: a perfect ranking scores 1.
    """
    return ranked.hits[:, :k].sum(axis=1) / np.minimum(ranked.num_relevant, k)


CAPPED_RECALL = RankingMetric("capped_recall", "capped recall", capped_recall)
