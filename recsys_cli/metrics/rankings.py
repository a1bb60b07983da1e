"""Metrics of rankings: of a user's top k, and of the given candidates of an impression."""

from __future__ import annotations

from recsys_cli.metrics.metric import Floats, Hits, ImpressionMetric, RankedImpressions, RankingMetric, by_name
from recsys_cli.packages import np


def hr(ranked: Hits, k: int) -> Floats:
    """Return 1 for users with a hit in the top k, else 0; shape (U,)."""
    return ranked.hits[:, :k].any(axis=1).astype(float)


HR = RankingMetric("hr", "HR", hr)


def ndcg(ranked: Hits, k: int) -> Floats:
    """Return the discounted cumulative gain of the top k over that of the ideal ranking; shape (U,).

    Järvelin and Kekäläinen (2002): binary gain, discount log2(rank + 1), min(relevant, k) hits on top of the ideal.
    """
    discounts = 1 / np.log2(np.arange(2, k + 2))
    best = np.cumsum(discounts)[np.minimum(ranked.num_relevant, k) - 1]
    return (ranked.hits[:, :k] @ discounts) / best


NDCG = RankingMetric("ndcg", "NDCG", ndcg)


def mrr(ranked: Hits, k: int) -> Floats:
    """Return 1 / rank of the first hit, 0 without a hit in the top k; shape (U,)."""
    hits = ranked.hits[:, :k]
    return np.where(hits.any(axis=1), 1 / (hits.argmax(axis=1) + 1), 0.0)


MRR = RankingMetric("mrr", "MRR", mrr)


def recall(ranked: Hits, k: int) -> Floats:
    """Return the hits in the top k over all relevant items, not capped at k; shape (U,)."""
    return ranked.hits[:, :k].sum(axis=1) / ranked.num_relevant


RECALL = RankingMetric("recall", "recall", recall)


def precision(ranked: Hits, k: int) -> Floats:
    """Return the hits in the top k over k, for shorter rankings as well; shape (U,)."""
    return ranked.hits[:, :k].sum(axis=1) / k


PRECISION = RankingMetric("precision", "precision", precision)


def average_precision(ranked: Hits, k: int) -> Floats:
    """Return the sum of the precision at each hit in the top k, over min(relevant, k); shape (U,)."""
    hits = ranked.hits[:, :k]
    at_hits = (np.cumsum(hits, axis=1) / np.arange(1, k + 1) * hits).sum(axis=1)
    return at_hits / np.minimum(ranked.num_relevant, k)


MAP = RankingMetric("map", "MAP", average_precision)


def capped_recall(ranked: Hits, k: int) -> Floats:
    """Return the hits in the top k over min(k, relevant items); shape (U,).

    Liang et al., "Variational Autoencoders for Collaborative Filtering" (2018), equation 10: a perfect ranking scores 1.
    """
    return ranked.hits[:, :k].sum(axis=1) / np.minimum(ranked.num_relevant, k)


CAPPED_RECALL = RankingMetric("capped_recall", "capped recall", capped_recall)


def impression_auc(ranked: RankedImpressions, k: int | None = None) -> Floats:
    """Return the share of (clicked, other) pairs in the right order, by the U statistic; shape (G,)."""
    del k
    clicked, candidates = ranked.num_clicked, ranked.num_candidates
    below = clicked * (candidates - 1) - ranked.clicked_sum(ranked.rank)
    return (below - clicked * (clicked - 1) / 2) / (clicked * (candidates - clicked))


IMPRESSION_AUC = ImpressionMetric("impression_auc", "impression AUC", impression_auc)


def impression_mrr(ranked: RankedImpressions, k: int | None = None) -> Floats:
    """Return the mean of 1 / rank over the clicked candidates, not only the first; shape (G,)."""
    del k
    return ranked.clicked_sum(1 / (ranked.rank + 1)) / ranked.num_clicked


IMPRESSION_MRR = ImpressionMetric("impression_mrr", "impression MRR", impression_mrr)


def impression_ndcg(ranked: RankedImpressions, k: int | None = None) -> Floats:
    """Return the discounted gain of the first k candidates over the best possible one; shape (G,)."""
    assert k is not None
    gains = np.where(ranked.rank < k, 1 / np.log2(ranked.rank + 2), 0.0)
    best = np.cumsum(1 / np.log2(np.arange(k) + 2))
    return ranked.clicked_sum(gains) / best[np.minimum(ranked.num_clicked, k).astype(np.int64) - 1]


IMPRESSION_NDCG = ImpressionMetric("impression_ndcg", "impression NDCG", impression_ndcg, cut_offs=(5, 10))

IMPRESSION: dict[str, ImpressionMetric] = by_name(IMPRESSION_AUC, IMPRESSION_MRR, IMPRESSION_NDCG)
"""Metrics per impression of given candidates, by name; after the metrics per user in tables."""

RANKING: dict[str, RankingMetric] = by_name(HR, NDCG, MRR, RECALL, PRECISION, MAP)
"""Accuracy metrics of rankings, by name, in table order."""

OPTIONAL: dict[str, RankingMetric] = by_name(CAPPED_RECALL)
"""Metrics of published protocols, measured where `evaluate.metrics` names them."""
