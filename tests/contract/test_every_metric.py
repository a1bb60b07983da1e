"""Contract of every metric, and equality with a brute-force reference."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from recsys_cli.metrics import BEYOND, GROUPED, OF_NUMBERS, OPTIONAL, POINTWISE, RANKING, Catalog, Hits, Recommended
from recsys_cli.metrics.metric import ScoreCounts

# Ranking, for one user: the places of the ranking that are hits (from 1), how much there was to find, and k.
OF_RANKINGS = {**RANKING, **OPTIONAL}
SLOW_RANKING = {
    "hr": lambda places, relevant, k: float(any(p <= k for p in places)),
    "recall": lambda places, relevant, k: len([p for p in places if p <= k]) / relevant,
    "capped_recall": lambda places, relevant, k: len([p for p in places if p <= k]) / min(relevant, k),
    "precision": lambda places, relevant, k: len([p for p in places if p <= k]) / k,
    "mrr": lambda places, relevant, k: max([1 / p for p in places if p <= k], default=0.0),
    "ndcg": lambda places, relevant, k: (
        sum(1 / math.log2(p + 1) for p in places if p <= k)
        / sum(1 / math.log2(p + 1) for p in range(1, min(relevant, k) + 1))
    ),
    "map": lambda places, relevant, k: (
        sum(len([q for q in places if q <= p]) / p for p in places if p <= k) / min(relevant, k)
    ),
}


def _slow_auc(rows):
    pairs = [(p, n) for p, positive in rows if positive for n, other in rows if not other]
    return sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs) / len(pairs)


def _slow_ece(rows):
    # 15 bins of equal mass by the middle rank of a score, so equal scores stay together.
    bins: dict[int, list[float]] = {}
    for p, positive in rows:
        middle = sum(q < p for q, _ in rows) + sum(q == p for q, _ in rows) / 2
        bins.setdefault(min(14, math.floor(middle * (15 / len(rows)))), []).append(p - positive)
    return sum(abs(sum(errors)) for errors in bins.values()) / len(rows)


# RankingModel, for rows of (probability, label).
SLOW_POINTWISE = {
    "auc": _slow_auc,
    "log_loss": lambda rows: -sum(math.log(p if positive else 1 - p) for p, positive in rows) / len(rows),
    "accuracy": lambda rows: sum((p >= 0.5) == bool(positive) for p, positive in rows) / len(rows),
    "ece": _slow_ece,
    "calibration": lambda rows: sum(p for p, _ in rows) / sum(positive for _, positive in rows),
    "pr_auc": lambda rows: (
        sum(_precision([q for q in rows if q[0] >= p]) for p, positive in rows if positive) / sum(y for _, y in rows)
    ),
    "normalized_entropy": lambda rows: SLOW_POINTWISE["log_loss"](rows) / _entropy(_precision(rows)),
    "f1": lambda rows: (
        2 * sum(p >= 0.5 for p, positive in rows if positive) / sum((p >= 0.5) + positive for p, positive in rows)
    ),
    "rmse": lambda rows: math.sqrt(sum((p - positive) ** 2 for p, positive in rows) / len(rows)),
    "mae": lambda rows: sum(abs(p - positive) for p, positive in rows) / len(rows),
}


def _precision(rows):
    return sum(positive for _, positive in rows) / len(rows)


def _entropy(mean):
    return -(mean * math.log(mean) + (1 - mean) * math.log(1 - mean))


# Lists, for the lists of all users (candidate places), k, how often each candidate is in train, and their features.
def _mean_of(values):
    return lambda lists, k, counts, features: [
        sum(values(counts)[p] for p in places[:k]) / len(places[:k]) if places else math.nan for places in lists
    ]


def _slow_diversity(lists, k, counts, features):
    def of(places):
        known = [features[p] for p in places[:k] if features[p]]
        pairs = [(a, b) for i, a in enumerate(known) for b in known[:i]]
        return 1 - sum(len(a & b) / math.sqrt(len(a) * len(b)) for a, b in pairs) / len(pairs) if pairs else math.nan

    return [of(places) for places in lists]


def _slow_gini(lists, k, counts, features):
    shown = [sum(p in places[:k] for places in lists) for p in range(len(counts))]
    return sum(abs(a - b) for a in shown for b in shown) / (2 * len(shown) * sum(shown))


SLOW_BEYOND = {
    "coverage": lambda lists, k, counts, features: len({p for places in lists for p in places[:k]}) / len(counts),
    "gini": _slow_gini,
    "novelty": _mean_of(lambda counts: [-math.log2(n / sum(counts)) for n in counts]),
    "arp": _mean_of(lambda counts: counts),
    "diversity": _slow_diversity,
    "serendipity": None,  # have tests of their own
    "psndcg": None,
}


def _rows(rng: np.random.Generator, size: int, *, ties: bool) -> tuple[np.ndarray, np.ndarray]:
    logits = rng.normal(size=size)
    if ties:
        logits = logits.round(0)
    labels = (rng.random(size) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    labels[:2] = 0, 1
    return labels, logits


def _ranking(rng: np.random.Generator) -> Hits:
    hits = rng.random((200, 20)) < 0.2
    hits[:5] = False
    return Hits(hits, np.maximum(hits.sum(axis=1) + rng.integers(0, 30, 200), 1))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_metric_equals_brute_force(name: str, ties: bool) -> None:
    labels, logits = _rows(np.random.default_rng(3), 157, ties=ties)
    rows = list(zip((1 / (1 + np.exp(-logits))).tolist(), labels.tolist(), strict=True))

    value = POINTWISE[name].compute(ScoreCounts.of(labels, logits))

    assert value == pytest.approx(SLOW_POINTWISE[name](rows), abs=1e-12)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_metric_ignores_the_order_of_rows(name: str) -> None:
    rng = np.random.default_rng(4)
    labels, logits = _rows(rng, 301, ties=True)
    order = rng.permutation(301)

    again = POINTWISE[name].compute(ScoreCounts.of(labels[order], logits[order]))

    assert again == POINTWISE[name].compute(ScoreCounts.of(labels, logits))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name", [*POINTWISE, "rmse of numbers", "mae of numbers"])
def test_influence_equals_a_finite_difference(name: str, ties: bool) -> None:
    """The derivative equals the effect of a small change of one row weight."""
    labels, logits = _rows(np.random.default_rng(5), 60, ties=ties)
    base, _, of_numbers = name.partition(" of ")
    metric = OF_NUMBERS[base] if of_numbers else POINTWISE[name]
    tally = ScoreCounts.of(labels, logits)
    found = metric.influence(tally)
    for place in range(len(tally.logits)):
        for which, label in ((0, "positive"), (1, "negative")):
            changed = getattr(tally, label).copy()
            changed[place] += 1e-7
            moved = replace(tally, **{label: changed})
            if metric.parts is None:
                slope, expected = (metric.compute(moved) - metric.compute(tally)) / 1e-7, found[which][place]
            else:  # a row adds to its part, and makes all parts smaller by being one more row
                (of_score, parts), (_, others) = metric.parts(tally), metric.parts(moved)
                slope = (others[of_score[place]] - parts[of_score[place]]) / 1e-7
                expected = found[which][place] - parts[of_score[place]] / len(labels)
            assert slope == pytest.approx(expected, abs=2e-5)


BEST = {
    "auc": 1, "pr_auc": 1, "log_loss": 0, "normalized_entropy": 0, "accuracy": 1, "f1": 1, "rmse": 0, "mae": 0, "ece": 0,
    "calibration": 1,
}  # fmt: skip


@pytest.mark.parametrize(("name", "best"), BEST.items())
def test_pointwise_metric_of_perfect_scores_is_best(name: str, best: float) -> None:
    labels = np.array([0, 1, 1, 0, 1], np.float32)

    assert POINTWISE[name].compute(ScoreCounts.of(labels, np.where(labels > 0, 40.0, -40.0))) == pytest.approx(best)


def test_undefined_pointwise_metrics_are_nan() -> None:
    one_class, nothing = (
        ScoreCounts.of(np.zeros(3, np.float32), [1.0, 2.0, 3.0]),
        ScoreCounts.of(np.empty(0, np.float32), []),
    )

    assert math.isnan(POINTWISE["auc"].compute(one_class))
    assert math.isnan(POINTWISE["calibration"].compute(one_class))
    assert math.isnan(POINTWISE["pr_auc"].compute(one_class))
    assert math.isnan(POINTWISE["normalized_entropy"].compute(one_class))
    assert all(math.isnan(metric.compute(nothing)) for metric in POINTWISE.values())


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("name", OF_RANKINGS)
def test_ranking_metric_equals_brute_force(name: str, k: int) -> None:
    ranked = _ranking(np.random.default_rng(7))

    values = OF_RANKINGS[name].compute(ranked, k)

    slow = [
        SLOW_RANKING[name]((np.flatnonzero(row) + 1).tolist(), int(relevant), k)
        for row, relevant in zip(ranked.hits, ranked.num_relevant, strict=True)
    ]
    assert values == pytest.approx(slow, abs=1e-12)
    assert values.shape == (200,)
    assert ((values >= 0) & (values <= 1)).all()


@pytest.mark.parametrize("name", OF_RANKINGS)
def test_ranking_metric_of_a_perfect_ranking_is_one(name: str) -> None:
    everything = Hits(np.ones((3, 4), dtype=bool), np.array([4, 4, 4]))

    assert OF_RANKINGS[name].compute(everything, 4) == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("name", OF_RANKINGS)
def test_ranking_metric_without_hits_is_zero(name: str) -> None:
    assert OF_RANKINGS[name].compute(Hits(np.zeros((2, 4), dtype=bool), np.array([1, 9])), 3).tolist() == [0, 0]


@pytest.mark.parametrize("name", OF_RANKINGS)
def test_ranking_metric_is_independent_of_other_users(name: str) -> None:
    rng = np.random.default_rng(8)
    ranked = _ranking(rng)
    order = rng.permutation(len(ranked.hits))

    shuffled = OF_RANKINGS[name].compute(Hits(ranked.hits[order], ranked.num_relevant[order]), 10)

    assert shuffled.tolist() == OF_RANKINGS[name].compute(ranked, 10)[order].tolist()


def test_every_metric_has_a_brute_force_reference() -> None:
    assert set(SLOW_POINTWISE) == set(POINTWISE) == set(BEST)
    assert set(SLOW_RANKING) == set(OF_RANKINGS)
    assert set(SLOW_BEYOND) == set(BEYOND)
    assert set(GROUPED) == {"gauc"}


@pytest.mark.parametrize("ties", [False, True])
def test_gauc_is_the_auc_of_each_user(ties: bool) -> None:
    rng = np.random.default_rng(9)
    labels, logits = _rows(rng, 300, ties=ties)
    users = rng.integers(3, 40, 300).astype(np.int32)
    users[:4] = 100  # has rows of both labels; the next has one row
    users[4] = 101

    aucs, weights = GROUPED["gauc"].compute(users, labels, logits)

    slow = {}
    for user in np.unique(users):
        rows = list(zip(logits[users == user].tolist(), labels[users == user].tolist(), strict=True))
        if 0 < sum(positive for _, positive in rows) < len(rows):
            slow[user] = (_slow_auc(rows), len(rows))
    assert len(slow) < len(np.unique(users))
    assert list(zip(aucs, weights, strict=True)) == [pytest.approx(pair) for pair in slow.values()]


def test_gauc_without_users_is_empty() -> None:
    aucs, weights = GROUPED["gauc"].compute(np.empty(0, np.int32), np.empty(0, np.float32), np.empty(0))

    assert (len(aucs), len(weights)) == (0, 0)


def _lists(
    rng: np.random.Generator, *, users: int = 40, items: int = 15, size: int = 8
) -> tuple[Recommended, list, list]:
    """Sample recommendations, the last ones shorter or empty; candidates with 0 to 3 features."""
    places = np.stack([rng.permutation(items)[:size] for _ in range(users)]).astype(np.int32)
    places[-2, 3:], places[-1] = -1, -1
    features = [set(rng.permutation(6)[: rng.integers(0, 4)].tolist()) for _ in range(items)]
    counts = np.sort(rng.integers(1, 100, items))[::-1]
    offsets = np.cumsum([0, *(len(one) for one in features)])
    flat = np.array([feature for one in features for feature in sorted(one)], np.int64)
    hits = (rng.random(places.shape) < 0.3) & (places >= 0)
    popular = rng.integers(0, items, places.shape)
    catalog = Catalog(counts, int(counts.sum()), flat, offsets)
    lists = Recommended(hits, np.full(users, 9), places, popular, catalog)
    return lists, [[int(p) for p in row if p >= 0] for row in places], features


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("name", [name for name, slow in SLOW_BEYOND.items() if slow])
def test_metric_of_lists_equals_brute_force(name: str, k: int) -> None:
    lists, plain, features = _lists(np.random.default_rng(10))

    values = BEYOND[name].compute(lists, k)

    slow = SLOW_BEYOND[name](plain, k, lists.catalog.counts.tolist(), features)
    assert values == pytest.approx(np.array(slow), abs=1e-9, nan_ok=True)


def test_serendipity_counts_hits_outside_the_popularity_ranking() -> None:
    hits = np.array([[True, True, False, True], [False] * 4])
    popular = np.array([[0, 2, 9, 7], [5, 6, 7, 8]])
    catalog = Catalog(np.array([5, 4]), 9, np.empty(0, np.int64), np.zeros(3, np.int64))
    lists = Recommended(hits, np.array([3, 1]), np.zeros((2, 4), np.int32), popular, catalog)

    assert BEYOND["serendipity"].compute(lists, 2).tolist() == [1 / 2, 0]
    assert BEYOND["serendipity"].compute(lists, 4).tolist() == [1 / 4, 0]


def _slow_psndcg(users, counts, k):
    """The definition, for users of (items of the ranking, relevant items, number of relevant items without a place)."""

    def dcg(gains):
        return sum(gain / math.log2(place + 1) for place, gain in enumerate(gains[:k], start=1))

    found, best = [], []
    for ranking, relevant, outside in users:
        weight = {item: max(counts[item], 1) ** -0.5 for item in relevant}
        plain = dcg([1.0] * (len(relevant) + outside))
        found.append(dcg([weight.get(item, 0.0) for item in ranking]) / plain)
        best.append(dcg(sorted([*weight.values(), *[1.0] * outside], reverse=True)) / plain)
    return sum(found) / sum(best)


def _recommended(users, counts) -> Recommended:
    hits = np.array([[item in relevant for item in ranking] for ranking, relevant, _ in users])
    places = np.array([ranking for ranking, _, _ in users], np.int32)
    relevant = [sorted(one) for _, one, _ in users]
    catalog = Catalog(np.array(counts), sum(counts), np.empty(0, np.int64), np.zeros(len(counts) + 1, np.int64))
    return Recommended(
        hits, np.array([len(one) + outside for _, one, outside in users]), places, np.zeros_like(places), catalog,
        relevant=np.array([item for one in relevant for item in one], np.int64),
        relevant_offsets=np.cumsum([0, *map(len, relevant)]),
    )  # fmt: skip


def _users_of_psndcg(rng: np.random.Generator) -> list:
    users = []
    for _ in range(60):
        relevant = set(rng.permutation(20)[: rng.integers(0, 6)].tolist())
        users.append((rng.permutation(20)[:8].tolist(), relevant, int(rng.integers(not relevant, 3))))
    return users


@pytest.mark.parametrize("k", [1, 3, 8])
def test_psndcg_equals_brute_force(k: int) -> None:
    rng = np.random.default_rng(11)
    counts = [*np.sort(rng.integers(1, 400, 18))[::-1].tolist(), 0, 0]  # the last are cold items
    users = _users_of_psndcg(rng)

    values = BEYOND["psndcg"].compute(_recommended(users, counts), k)

    assert values.shape == (60,)
    assert values.mean() == pytest.approx(_slow_psndcg(users, counts, k), abs=1e-12)
    perfect = [(sorted(one, reverse=True) + [25 + place for place in range(8)], one, 0) for _, one, _ in users if one]
    perfect = [(ranking[:8], one, 0) for ranking, one, _ in perfect]
    assert BEYOND["psndcg"].compute(_recommended(perfect, [*counts, *[0] * 20]), k) == pytest.approx(1)


def test_psndcg_of_equally_popular_items_is_ndcg() -> None:
    users = [(ranking, relevant, 0) for ranking, relevant, _ in _users_of_psndcg(np.random.default_rng(12)) if relevant]
    lists = _recommended(users, [7] * 20)

    assert BEYOND["psndcg"].compute(lists, 5) == pytest.approx(RANKING["ndcg"].compute(lists, 5))


def test_values_of_psndcg_are_linear_around_the_ratio() -> None:
    """Without one user, the mean of the others' values is the ratio of the others, up to second order."""
    rng = np.random.default_rng(13)
    counts = [*np.sort(rng.integers(1, 400, 20))[::-1].tolist()]
    users = _users_of_psndcg(rng)
    values = BEYOND["psndcg"].compute(_recommended(users, counts), 8)
    for left_out in range(0, 60, 7):
        others = [user for number, user in enumerate(users) if number != left_out]
        exact = _slow_psndcg(others, counts, 8)
        assert abs(np.delete(values, left_out).mean() - exact) < 0.1 * abs(values.mean() - exact) + 1e-9


def test_psndcg_without_the_ground_truth_is_undefined() -> None:
    lists, _, _ = _lists(np.random.default_rng(10))
    assert np.isnan(BEYOND["psndcg"].compute(lists, 3)).all()


def test_psndcg_corrects_popularity_biased_observation() -> None:
    """Tastes are by q, and an interaction is observed with a probability in proportion to q: the correction is exact.

    Then N is in proportion to q², and its weight N ** -0.5 is the inverse of that probability. In the unbiased world, where
    everything is observed, the plain NDCG of a model is known from q.
    """
    rng = np.random.default_rng(14)
    q = np.arange(1, 41, dtype=float)[::-1]
    q /= q.sum()
    observed = q**2 / (q**2).sum()
    counts = np.round(observed * 1e6).astype(np.int64).tolist()
    targets = rng.choice(40, size=20_000, p=observed).tolist()
    discount = 1 / np.log2(np.arange(2, 12))

    popular = _recommended([(list(range(10)), {target}, 0) for target in targets], counts)
    plain = RANKING["ndcg"].compute(popular, 10).mean()
    debiased = BEYOND["psndcg"].compute(popular, 10).mean()
    assert plain == pytest.approx(observed[:10] @ discount, abs=0.01)
    assert debiased == pytest.approx(q[:10] @ discount, abs=0.005)
    assert debiased < 0.75 * plain

    knows = rng.random(20_000) < 0.6  # at a place that does not depend on the popularity of the target
    fillers = [[item for item in range(40) if item != target][:9] for target in targets]
    of_truth = _recommended(
        [
            ([target, *others] if known else [*others, others[0]], {target}, 0)
            for target, others, known in zip(targets, fillers, knows, strict=True)
        ],
        counts,
    )
    assert RANKING["ndcg"].compute(of_truth, 10).mean() == pytest.approx(0.6, abs=0.01)
    assert BEYOND["psndcg"].compute(of_truth, 10).mean() == pytest.approx(0.6, abs=0.01)


def test_gini_is_0_for_equal_and_near_1_for_concentrated_exposure() -> None:
    catalog = Catalog(np.ones(50, np.int64), 50, np.empty(0, np.int64), np.zeros(51, np.int64))

    def gini(places: np.ndarray) -> float:
        nothing = np.zeros(places.shape)
        return float(BEYOND["gini"].compute(Recommended(nothing > 0, nothing[:, 0], places, nothing, catalog), 1))

    assert gini(np.arange(50)[:, None]) == pytest.approx(0)
    assert gini(np.zeros((50, 1), np.int32)) == pytest.approx(0.98)
    assert math.isnan(gini(np.full((2, 1), -1)))
