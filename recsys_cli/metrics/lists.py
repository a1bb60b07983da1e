"""Metrics of recommended lists with statistics of the catalog: beyond accuracy, and corrected for popularity."""

from __future__ import annotations

from recsys_cli.metrics.metric import Catalog, Floats, ListMetric, Recommended, by_name
from recsys_cli.packages import np, npt


def coverage(lists: Recommended, k: int) -> Floats:
    """Return the share of the candidates in at least one user's top k; shape ().

    Ge, Delgado-Battenfeld and Jannach (RecSys 2010). Grows with the number of users.
    """
    return np.asarray(np.count_nonzero(times_shown(lists, k)) / max(1, len(lists.catalog.counts)))


def times_shown(lists: Recommended, k: int) -> Floats:
    """Return the number of users with each candidate in their top k; shape (I,)."""
    candidates = lists.candidates[:, :k]
    return np.bincount(candidates[candidates >= 0], minlength=len(lists.catalog.counts)).astype(np.float64)


COVERAGE = ListMetric("coverage", "coverage", "higher", coverage, in_unit=True)


def gini(lists: Recommended, k: int) -> Floats:
    """Return the Gini coefficient of the candidates' counts in the top k of all users; in [0, 1], lower is better; shape ().

    0 for equal exposure, near 1 for concentration on few items. Fleder and Hosanagar (2009).
    """
    shown = np.sort(times_shown(lists, k))
    size, total = len(shown), shown.sum()
    if not total:
        return np.asarray(np.nan)
    return np.asarray(((2 * np.arange(1, size + 1) - size - 1) @ shown) / (size * total))


GINI = ListMetric("gini", "Gini", "lower", gini, in_unit=True)


def novelty(lists: Recommended, k: int) -> Floats:
    """Return the mean self-information of the items in each user's top k, in bits; shape (U,).

    -log2 p for an item with a share p of the train interactions (Zhou et al., PNAS 2010); items without interactions
    count as items with one. No direction: novelty is a trade-off.
    """
    return mean_shown(lists, k, -np.log2(np.maximum(lists.catalog.counts, 1) / lists.catalog.num_rows))


def mean_shown(lists: Recommended, k: int, values: Floats) -> Floats:
    """Return the mean over each user's top k of item values (I,); NaN for an empty ranking; shape (U,)."""
    candidates = lists.candidates[:, :k]
    filled = candidates >= 0
    total = np.where(filled, values[candidates], 0.0).sum(axis=1)
    number = filled.sum(axis=1)
    return np.divide(total, number, out=np.full_like(total, np.nan), where=number > 0)


NOVELTY = ListMetric("novelty", "novelty (bits)", None, novelty)


def arp(lists: Recommended, k: int) -> Floats:
    """Return the mean number of train interactions of each user's top-k items; shape (U,).

    Yin et al. (VLDB 2012). No direction: popularity bias is a trade-off.
    """
    return mean_shown(lists, k, lists.catalog.counts.astype(float))


ARP = ListMetric("arp", "mean popularity (ARP)", None, arp)


_USERS = 4_096


def diversity(lists: Recommended, k: int) -> Floats:
    """Return 1 - mean pairwise cosine of item features in each user's top k; in [0, 1]; shape (U,).

    Features are categories, such as genres: sets of size m and n with c in common have the cosine c / sqrt(m n).
    Items without features are left out; NaN for fewer than two items. Ziegler et al. (WWW 2005).
    """
    blocks = range(0, len(lists.candidates), _USERS)
    parts = [_block(lists.candidates[start : start + _USERS, :k], lists.catalog) for start in blocks]
    return np.concatenate(parts) if parts else np.empty(0)


def _block(candidates: npt.NDArray[np.int32], catalog: Catalog) -> Floats:
    # The sum of cosines over ordered pairs is the squared length of the sum of unit vectors, minus one per item.
    user, column = np.nonzero(candidates >= 0)
    item = candidates[user, column]
    starts = catalog.offsets[item]
    lengths = catalog.offsets[item + 1] - starts
    number = np.bincount(user[lengths > 0], minlength=len(candidates))
    row = np.repeat(np.arange(len(item)), lengths)
    feature = catalog.features[np.arange(len(row)) + (starts - np.cumsum(lengths) + lengths)[row]]
    width = int(catalog.features.max(initial=0)) + 1
    pairs, where = np.unique(user[row] * width + feature, return_inverse=True)
    sums = np.bincount(where, weights=1 / np.sqrt(lengths[row]), minlength=len(pairs))
    squared = np.bincount(pairs // width, weights=sums**2, minlength=len(candidates))
    return np.where(number > 1, 1 - (squared - number) / np.maximum(number * (number - 1), 1), np.nan)


DIVERSITY = ListMetric("diversity", "intra-list diversity", "higher", diversity, in_unit=True)


def serendipity(lists: Recommended, k: int) -> Floats:
    """Return the hits in the top k outside the user's top k by popularity, over k; shape (U,).

    Ge, Delgado-Battenfeld and Jannach (RecSys 2010), with popularity as the primitive recommender.
    """
    unexpected = lists.hits[:, :k] & (lists.by_popularity[:, :k] >= k)
    return unexpected.sum(axis=1) / k


SERENDIPITY = ListMetric("serendipity", "serendipity", "higher", serendipity, in_unit=True)


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


BEYOND: dict[str, ListMetric] = by_name(PSNDCG, COVERAGE, GINI, NOVELTY, ARP, DIVERSITY, SERENDIPITY)
"""Debiased and beyond-accuracy metrics of rankings, by name, in table order."""
