"""Paired tests by hand, against a bootstrap, and on differences that are nothing but chance."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm, ttest_1samp

from recsys_cli.evaluation.compare.outcomes import Outcomes, PairedTest, by_users, holm
from recsys_cli.evaluation.intervals import Clusters
from recsys_cli.metrics.labels import AUC, row_placements


def alone(number: int) -> Clusters:
    return Clusters.of(np.arange(number))


def by_rows(metric: str, *values: np.ndarray, labels: np.ndarray | None = None) -> PairedTest:
    """Test a system against another by a metric of rows of as many users."""
    labels = np.zeros(len(values[0]), np.bool_) if labels is None else labels
    own, other = (Outcomes({}, {metric: one}, labels, alone(len(one))) for one in values)
    return own.minus(other, [metric], resamples=10, seed=0)[metric]


def p_of(differences: np.ndarray) -> float:
    (tested,) = by_users(np.asarray(differences, dtype=float)[:, None], resamples=10, seed=0)
    return tested.p


def test_the_p_value_is_that_of_the_t_test() -> None:
    differences = np.random.default_rng(3).exponential(size=40) - 0.8
    assert p_of(differences) == pytest.approx(ttest_1samp(differences, 0).pvalue)


def test_few_users_prove_nothing() -> None:
    """Equal differences of a few users have no variance, and a t test then knows everything."""
    assert p_of(np.array([0.4])) == 1.0
    assert p_of(np.full(5, 0.4)) == pytest.approx(2**-4)
    assert p_of(np.full(20, 0.4)) < 1e-5
    assert by_rows("log_loss", np.array([0.7]), np.zeros(1)).p == 1.0


def test_sums_in_another_order_are_ties() -> None:
    """0.1 + 0.2 is not 0.3 in floating point, and is no difference."""
    assert p_of(np.array([0.1 + 0.2 - 0.3] * 20)) == 1.0


def test_holm_by_hand() -> None:
    """Of four tests: 0.01 x 4, 0.02 x 3, 0.03 x 2, 0.5 x 1; and none below one that was smaller."""
    assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.01, 0.011]) == pytest.approx([0.02, 0.02])  # 0.011 x 1 would be less than its better
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_identical_systems_do_not_differ() -> None:
    (tested,) = by_users(np.zeros((50, 1)), resamples=100, seed=0)
    assert (tested.value, tested.low, tested.high, tested.p) == (0, 0, 0, 1)
    rows = by_rows("log_loss", np.arange(50.0), np.arange(50.0))
    assert (rows.value, rows.low, rows.high, rows.p) == (0, 0, 0, 1)


def test_a_planted_difference_is_found_with_its_size() -> None:
    rng = np.random.default_rng(1)
    differences = rng.normal(0, 0.2, (800, 2))
    differences += [0.05, 0.001] - differences.mean(axis=0)
    planted, nothing = by_users(differences, resamples=500, seed=0)
    assert planted.value == pytest.approx(0.05)
    assert 0 < planted.low < 0.05 < planted.high
    assert planted.p < 1e-6
    assert nothing.low < 0 < nothing.high
    assert nothing.p > 0.05


def test_the_interval_over_users_is_as_wide_as_theory_says() -> None:
    differences = np.random.default_rng(2).normal(0.1, 0.3, (1_000, 1))
    (tested,) = by_users(differences, resamples=4_000, seed=0)
    expected = 2 * norm.ppf(0.975) * differences.std() / np.sqrt(1_000)
    assert tested.high - tested.low == pytest.approx(expected, rel=0.06)


def rows_of(seed: int, *, rows: int = 400, gain: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, and the scores of two systems with noise of their own, the second with more of the signal."""
    rng = np.random.default_rng(seed)
    labels = rng.random(rows) < 0.4
    shared = rng.normal(size=rows)
    one = labels + shared + rng.normal(size=rows)
    two = labels * (1 + gain) + shared + rng.normal(size=rows)
    return labels, one.round(1), two.round(1)


def test_placements_average_to_the_auc_over_either_class() -> None:
    labels, one, _ = rows_of(0)
    placed = row_placements(labels, one)
    expected = AUC.of_rows(labels.astype(np.float32), one)
    assert placed[labels].mean() == pytest.approx(expected)
    assert placed[~labels].mean() == pytest.approx(expected)


def test_the_interval_of_an_auc_difference_is_that_of_a_paired_poisson_bootstrap() -> None:
    labels, one, two = rows_of(3)
    tested = by_rows("auc", row_placements(labels, two), row_placements(labels, one), labels=labels)
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(1_500):
        times = rng.poisson(1, len(labels))
        rows = np.repeat(np.arange(len(labels)), times)
        chosen = labels[rows].astype(np.float32)
        drawn.append(AUC.of_rows(chosen, two[rows]) - AUC.of_rows(chosen, one[rows]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    width = high - low
    assert tested.value == pytest.approx(
        AUC.of_rows(labels.astype(np.float32), two) - AUC.of_rows(labels.astype(np.float32), one)
    )
    assert (tested.low, tested.high) == pytest.approx((low, high), abs=0.08 * width)


@pytest.mark.parametrize("test", ["users", "auc", "rows"])
def test_false_positive_rate_is_five_percent(test: str) -> None:
    """400 worlds without a difference: 20 discoveries are expected, and more than 34 come once in two thousand times."""
    found = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        if test == "users":  # two systems that find one of ten items at random: ties and zeros as in real rankings
            hits = rng.random((2, 150)) < 0.3
            places = rng.integers(1, 11, (2, 150))
            one, two = hits / np.log2(places + 1)
            found += p_of(one - two) < 0.05
        elif test == "auc":
            labels, one, two = rows_of(seed, rows=150, gain=0.0)
            placed = row_placements(labels, two), row_placements(labels, one)
            found += by_rows("auc", *placed, labels=labels).p < 0.05
        else:
            found += by_rows("log_loss", rng.exponential(size=150), rng.exponential(size=150)).p < 0.05
    assert 8 <= found <= 34


def test_equal_means_of_unlike_hits_are_seldom_a_discovery() -> None:
    """NDCG .05 by few hits at rank 1, or by many at rank 10: of 200 families of 10 at most 5 % may have a discovery.

    A signed-rank test, which is of symmetry, has one in half of them.
    """
    families = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        first = (rng.random(600) < 0.05) * 1.0
        rivals = (rng.random((600, 10)) < 0.05 * np.log2(11)) / np.log2(11)
        families += min(holm([p_of(column) for column in (first[:, None] - rivals).T])) < 0.05
    assert families <= 20


def test_a_family_of_chances_seldom_has_any_discovery() -> None:
    """Of 300 families of 12 true nulls at most 5 % may have a discovery: 15; without a correction it would be about 138."""
    families = 0
    for seed in range(300):
        differences = np.random.default_rng(seed).normal(size=(60, 12))
        families += min(holm([p_of(column) for column in differences.T])) < 0.05
    assert families <= 27


def test_the_best_of_equal_models_is_seldom_better() -> None:
    """Of 300 families of 10 equal models at most 5 % may have a model below the best: 15; with nine tests it would be about 36."""
    families = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        models = (rng.random((200, 10)) < 0.15) * rng.random((200, 10))
        best = models.mean(axis=0).argmax()
        p = [p_of(models[:, best] - models[:, other]) for other in range(10) if other != best]
        families += min(holm(p, hypotheses=45)) < 0.05
    assert families <= 24


def test_a_larger_family_corrects_more() -> None:
    assert holm([0.01, 0.001], hypotheses=6) == pytest.approx([0.05, 0.006])
    assert holm([0.01, 0.001]) == holm([0.01, 0.001], hypotheses=2) == pytest.approx([0.01, 0.002])
