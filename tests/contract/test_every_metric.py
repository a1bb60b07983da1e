"""What holds of every metric, and the slow and plain way to compute each, which it has to agree with."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsys_cli.evaluation.metrics import POINTWISE, RANKING, Hits
from recsys_cli.evaluation.tally import Tally

# Ranking, for one user: the places of the ranking that are hits (from 1), how much there was to find, and k.
SLOW_RANKING = {
    "hr": lambda places, relevant, k: float(any(p <= k for p in places)),
    "recall": lambda places, relevant, k: len([p for p in places if p <= k]) / relevant,
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


# Pointwise, for rows of (probability, label).
SLOW_POINTWISE = {
    "auc": _slow_auc,
    "log_loss": lambda rows: -sum(math.log(p if positive else 1 - p) for p, positive in rows) / len(rows),
    "accuracy": lambda rows: sum((p >= 0.5) == bool(positive) for p, positive in rows) / len(rows),
    "ece": _slow_ece,
    "calibration": lambda rows: sum(p for p, _ in rows) / sum(positive for _, positive in rows),
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

    (value,) = POINTWISE[name].compute(Tally.of(labels, logits))

    assert value == pytest.approx(SLOW_POINTWISE[name](rows), abs=1e-12)


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_metric_ignores_the_order_of_rows(name: str) -> None:
    rng = np.random.default_rng(4)
    labels, logits = _rows(rng, 301, ties=True)
    order = rng.permutation(301)

    again = POINTWISE[name].compute(Tally.of(labels[order], logits[order]))

    assert again == POINTWISE[name].compute(Tally.of(labels, logits))


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_metric_computes_each_weighting_on_its_own(name: str) -> None:
    labels, logits = _rows(np.random.default_rng(5), 99, ties=True)
    drawn = Tally.of(labels, logits).resampled(range(7), seed=6)

    together = POINTWISE[name].compute(drawn)

    alone = [
        POINTWISE[name].compute(Tally(drawn.logits, drawn.positive[r : r + 1], drawn.negative[r : r + 1]))[0]
        for r in range(7)
    ]
    assert together == pytest.approx(alone, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "best"), [("auc", 1), ("log_loss", 0), ("accuracy", 1), ("ece", 0), ("calibration", 1)]
)
def test_pointwise_metric_of_perfect_scores_is_best(name: str, best: float) -> None:
    labels = np.array([0, 1, 1, 0, 1], np.float32)

    assert POINTWISE[name].compute(Tally.of(labels, np.where(labels > 0, 40.0, -40.0)))[0] == pytest.approx(best)


def test_pointwise_metrics_that_are_not_defined_are_nan() -> None:
    one_class, nothing = Tally.of(np.zeros(3, np.float32), [1.0, 2.0, 3.0]), Tally.of(np.empty(0, np.float32), [])

    assert math.isnan(POINTWISE["auc"].compute(one_class)[0])
    assert math.isnan(POINTWISE["calibration"].compute(one_class)[0])
    assert all(math.isnan(metric.compute(nothing)[0]) for metric in POINTWISE.values())


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("name", RANKING)
def test_ranking_metric_equals_brute_force(name: str, k: int) -> None:
    ranked = _ranking(np.random.default_rng(7))

    values = RANKING[name].compute(ranked, k)

    slow = [
        SLOW_RANKING[name]((np.flatnonzero(row) + 1).tolist(), int(relevant), k)
        for row, relevant in zip(ranked.hits, ranked.num_relevant, strict=True)
    ]
    assert values == pytest.approx(slow, abs=1e-12)
    assert values.shape == (200,)
    assert ((values >= 0) & (values <= 1)).all()


@pytest.mark.parametrize("name", RANKING)
def test_ranking_metric_of_a_perfect_ranking_is_one(name: str) -> None:
    everything = Hits(np.ones((3, 4), dtype=bool), np.array([4, 4, 4]))

    assert RANKING[name].compute(everything, 4) == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("name", RANKING)
def test_ranking_metric_without_hits_is_zero(name: str) -> None:
    assert RANKING[name].compute(Hits(np.zeros((2, 4), dtype=bool), np.array([1, 9])), 3).tolist() == [0, 0]


@pytest.mark.parametrize("name", RANKING)
def test_ranking_metric_is_the_users_own(name: str) -> None:
    rng = np.random.default_rng(8)
    ranked = _ranking(rng)
    order = rng.permutation(len(ranked.hits))

    shuffled = RANKING[name].compute(Hits(ranked.hits[order], ranked.num_relevant[order]), 10)

    assert shuffled.tolist() == RANKING[name].compute(ranked, 10)[order].tolist()


def test_every_metric_has_a_slow_twin() -> None:
    assert set(SLOW_POINTWISE) == set(POINTWISE)
    assert set(SLOW_RANKING) == set(RANKING)
