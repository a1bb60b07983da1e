"""Intervals cover what they should, shrink with more rows, and are the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.evaluation.intervals import Clusters, ScoredRows, mean_estimates, pointwise_estimates, unit_estimates
from recsys_cli.metrics import POINTWISE
from recsys_cli.metrics.metric import ScoreCounts


def _sample(rng: np.random.Generator, size: int) -> ScoredRows:
    # Two normal scores one standard deviation apart have the AUC Φ(1 / sqrt 2) = 0.76025.
    labels = (np.arange(size) % 2).astype(np.float32)
    return _alone(labels, rng.normal(size=size) + labels)


def _alone(labels: np.ndarray, scores: np.ndarray) -> ScoredRows:
    return ScoredRows.of(labels, scores, Clusters.of(np.arange(len(labels))))


def test_auc_interval_is_as_wide_as_theory_says() -> None:
    estimate = pointwise_estimates(_sample(np.random.default_rng(2), 4_000), POINTWISE, resamples=100, seed=0)["auc"]

    # Hanley and McNeil (1982) for AUC 0.76 with 2,000 rows of each class: standard error 0.0075.
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * 0.0075, rel=0.05)


@pytest.mark.parametrize("name", [name for name in POINTWISE if name != "ece"])
def test_intervals_are_those_of_drawing_users(name: str) -> None:
    """Against the slow way: draw users with all of their rows, and compute the figure again."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 12, 250)
    user = np.repeat(np.arange(250), sizes)
    scores = (rng.normal(size=250)[user] + rng.normal(size=len(user))).round(1)
    labels = (rng.random(len(user)) < 1 / (1 + np.exp(-scores - rng.normal(size=250)[user]))).astype(np.float32)
    rows = ScoredRows.of(labels, scores, Clusters.of(user))

    found = pointwise_estimates(rows, {name: POINTWISE[name]}, resamples=10, seed=0)[name]

    drawn = []
    for _ in range(600):
        chosen = np.repeat(np.arange(len(user)), np.bincount(rng.integers(0, 250, 250), minlength=250)[user])
        drawn.append(POINTWISE[name].compute(ScoreCounts.of(labels[chosen], scores[chosen])))
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(np.std(drawn), rel=0.12)
    assert found.low <= POINTWISE[name].compute(ScoreCounts.of(labels, scores)) == found.value <= found.high


def test_calibration_error_interval_contains_the_value_and_no_negative_errors() -> None:
    rng = np.random.default_rng(4)
    logits = rng.normal(size=2_000)
    labels = (rng.random(2_000) < 1 / (1 + np.exp(-logits))).astype(np.float32)

    ece = pointwise_estimates(_alone(labels, logits), POINTWISE, resamples=300, seed=0)["ece"]

    assert 0 == ece.low <= ece.value <= ece.high  # the scores are honest, so no error is among what may be


def test_calibration_error_interval_near_zero_is_not_too_narrow() -> None:
    labels = (np.arange(2_500) % 2).astype(np.float32)

    ece = pointwise_estimates(_alone(labels, np.zeros(2_500)), POINTWISE, resamples=300, seed=0)["ece"]

    # The share of positive rows has a standard error of 0.01, so an error of 0.02 is well possible.
    assert (ece.value, ece.low) == (0, 0)
    assert 0.015 < ece.high < 0.03


def test_one_class_has_no_auc_and_no_interval() -> None:
    found = pointwise_estimates(_alone(np.ones(5, np.float32), np.arange(5.0)), POINTWISE, resamples=10, seed=0)

    assert found["auc"].model_dump() == {"value": None, "low": None, "high": None}
    assert found["accuracy"].value == 1


def test_mean_interval_is_that_of_the_normal_approximation_and_shrinks() -> None:
    rng = np.random.default_rng(5)
    widths = []
    for num_users in (100, 10_000):
        values = rng.random((num_users, 1))
        (estimate,) = mean_estimates(values, resamples=1_000, seed=0)
        widths.append(estimate.high - estimate.low)
        assert estimate.value == pytest.approx(values.mean())
        assert widths[-1] == pytest.approx(2 * 1.96 * values.std() / np.sqrt(num_users), rel=0.15)
    assert widths[1] < widths[0] / 5


def test_mean_interval_does_not_depend_on_the_other_columns() -> None:
    values = np.random.default_rng(6).random((50, 3))

    together = mean_estimates(values, resamples=100, seed=9)

    assert together[1].low == pytest.approx(mean_estimates(values[:, 1:2], resamples=100, seed=9)[0].low)


def test_mean_of_no_users_is_undefined() -> None:
    assert [estimate.value for estimate in mean_estimates(np.empty((0, 2)), resamples=10, seed=0)] == [None, None]


def test_every_user_is_resampled() -> None:
    """Each user in turn is the only one who found anything: none may have an interval that no resample reaches."""
    found = mean_estimates(np.eye(40), resamples=400, seed=0)

    assert {estimate.low for estimate in found} == {0.0}
    assert all(0.05 <= estimate.high <= 0.15 for estimate in found)  # 2 to 6 times among 40 users


def test_draws_of_the_calibration_error_depend_on_the_seed_alone() -> None:
    rows = _sample(np.random.default_rng(7), 200)

    first, again, other = (pointwise_estimates(rows, POINTWISE, resamples=50, seed=seed) for seed in (1, 1, 2))

    assert first == again != other


def test_score_that_moves_by_a_digit_moves_the_interval_by_less_than_its_width() -> None:
    rng = np.random.default_rng(9)
    labels, logits = (rng.random(500) < 0.5).astype(np.float32), rng.integers(0, 300, 500) / 7
    moved = logits.copy()
    moved[:5] += 1e-6

    before, after = (
        pointwise_estimates(_alone(labels, scores), POINTWISE, resamples=10, seed=0)["auc"]
        for scores in (logits, moved)
    )

    assert (after.low, after.high) == pytest.approx((before.low, before.high), abs=0.05 * (before.high - before.low))


@pytest.mark.parametrize("users", [1, 80])
def test_no_hit_at_all_leaves_room_for_some(users: int) -> None:
    """With the upper bound as the true share of users with a hit, one sample of forty has none."""
    none, all_of_them = unit_estimates(np.stack([np.zeros(users), np.ones(users)], axis=1), resamples=20, seed=0)
    assert (none.value, none.low) == (0, 0)
    assert none.high is not None
    assert (1 - none.high) ** users == pytest.approx(0.025)
    assert (all_of_them.low, all_of_them.high) == (pytest.approx(1 - none.high), 1)
