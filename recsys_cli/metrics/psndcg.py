"""Propensity-scored NDCG: NDCG with relevant items weighted by inverse propensity, against popularity bias."""

from __future__ import annotations

import numpy as np

from recsys_cli.metrics.metric import ListMetric, Recommended
from recsys_cli.metrics.score_counts import Floats

BETA = 0.5
"""Exponent of the popularity. 0.5: the probability to observe an interaction is proportional to the true popularity of its item."""


def psndcg(lists: Recommended, k: int) -> Floats:
    """Return values of the users, with the propensity-scored NDCG of all users as their mean; shape (U,).

    A relevant item with N train interactions has the weight N ** -0.5, the stratification of Steck (RecSys 2011); without
    train interactions the weight is 1, as with one. With weights as gains, PSNDCG is the mean DCG over the mean DCG of the
    ideal ranking, where each user's DCG is divided by the unweighted ideal DCG (Jain, Prabhu and Varma, KDD 2016). Equal
    weights give NDCG. A mean of the users' own ratios would ignore the weight of a single relevant item.

    Values of users are linearized around the ratio: they can leave [0, 1]. NaN without the ground truth.
    """
    if lists.relevant is None:
        return np.full(len(lists.hits), np.nan)
    discounts = 1 / np.log2(np.arange(2, k + 2))
    sums = np.append(0, np.cumsum(discounts))
    weights = np.maximum(lists.catalog.counts, 1).astype(np.float64) ** -BETA
    plain = sums[np.minimum(lists.num_relevant, k)]
    found = np.where(lists.hits[:, :k], weights[lists.candidates[:, :k]], 0.0) @ discounts / plain
    best = _ideal(lists, weights, discounts, sums) / plain
    value = found.sum() / best.sum()
    return value + (found - value * best) / best.mean()


def _ideal(lists: Recommended, weights: Floats, discounts: Floats, sums: Floats) -> Floats:
    """Return the DCG of the ideal rankings, highest weights first; shape (U,)."""
    assert lists.relevant is not None
    lengths, k = np.diff(lists.relevant_offsets), len(discounts)
    outside = lists.num_relevant - lengths  # items outside the candidates have the highest weight
    user = np.repeat(np.arange(len(lengths)), lengths)
    # Candidates are sorted by train interactions, so the last relevant one of a user has the highest weight.
    rank = outside[user] + lists.relevant_offsets[1:][user] - 1 - np.arange(len(user))
    gains = weights[lists.relevant] * np.append(discounts, 0)[np.minimum(rank, k)]
    return sums[np.minimum(outside, k)] + np.bincount(user, weights=gains, minlength=len(lengths))


PSNDCG = ListMetric("psndcg", "PSNDCG", "higher", psndcg, in_unit=True)
