"""Intervals cover what they should, shrink with more rows, and are the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.evaluation import bootstrap
from recsys_cli.evaluation.bootstrap import mean_estimates, pointwise_estimates
from recsys_cli.evaluation.metrics import POINTWISE
from recsys_cli.evaluation.tally import Tally


def _sample(rng: np.random.Generator, size: int) -> Tally:
    # Two normal scores one standard deviation apart have the AUC Φ(1 / sqrt 2) = 0.76025.
    labels = (np.arange(size) % 2).astype(np.float32)
    return Tally.of(labels, rng.normal(size=size) + labels)


def test_auc_interval_covers_the_true_value_about_95_times_in_100() -> None:
    rng = np.random.default_rng(1)
    auc = {"auc": POINTWISE["auc"]}

    found = [pointwise_estimates(_sample(rng, 400), auc, resamples=200, seed=seed)["auc"] for seed in range(100)]

    covered = np.mean([estimate.low <= 0.76025 <= estimate.high for estimate in found])
    assert 0.90 <= covered <= 1


def test_auc_interval_is_as_wide_as_theory_says() -> None:
    estimate = pointwise_estimates(_sample(np.random.default_rng(2), 4_000), POINTWISE, resamples=1_000, seed=0)["auc"]

    # Hanley and McNeil (1982) for AUC 0.76 with 2,000 rows of each class: standard error 0.0075.
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * 0.0075, rel=0.15)


def test_interval_of_merged_scores_is_that_of_all_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = _sample(np.random.default_rng(3), 3_000)
    exact = pointwise_estimates(tally, POINTWISE, resamples=1_000, seed=0)
    monkeypatch.setattr(bootstrap, "GROUPS", 300)

    merged = pointwise_estimates(tally, POINTWISE, resamples=1_000, seed=0)

    for name in ("auc", "log_loss", "accuracy", "calibration"):
        assert merged[name].value == exact[name].value
        width = exact[name].high - exact[name].low
        assert merged[name].high - merged[name].low == pytest.approx(width, rel=0.15)


def test_calibration_error_interval_contains_the_value_and_no_negative_errors() -> None:
    rng = np.random.default_rng(4)
    logits = rng.normal(size=2_000)
    labels = (rng.random(2_000) < 1 / (1 + np.exp(-logits))).astype(np.float32)

    ece = pointwise_estimates(Tally.of(labels, logits), POINTWISE, resamples=300, seed=0)["ece"]

    assert 0 <= ece.low <= ece.value <= ece.high
    assert ece.low < 0.005  # the scores are honest, so no error is among what may be


def test_calibration_error_interval_near_zero_is_not_too_narrow() -> None:
    labels = (np.arange(2_500) % 2).astype(np.float32)

    ece = pointwise_estimates(Tally.of(labels, np.zeros(2_500)), POINTWISE, resamples=300, seed=0)["ece"]

    # The share of positive rows has a standard error of 0.01, so an error of 0.02 is well possible.
    assert (ece.value, ece.low) == (0, 0)
    assert 0.015 < ece.high < 0.03


def test_one_class_has_no_auc_and_no_interval() -> None:
    found = pointwise_estimates(Tally.of(np.ones(5, np.float32), np.arange(5.0)), POINTWISE, resamples=10, seed=0)

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


def test_mean_of_nobody_is_not_defined() -> None:
    assert [estimate.value for estimate in mean_estimates(np.empty((0, 2)), resamples=10, seed=0)] == [None, None]


def test_intervals_depend_on_the_seed_alone() -> None:
    tally = _sample(np.random.default_rng(7), 200)

    first, again, other = (pointwise_estimates(tally, POINTWISE, resamples=50, seed=seed) for seed in (1, 1, 2))

    assert first == again != other


def test_resamples_are_poisson_counts() -> None:
    tally = Tally(np.arange(3.0), np.array([[0.0, 1.0, 400.0]]), np.array([[7.0, 0.0, 2.0]]))

    drawn = tally.resampled(range(4_000), seed=0)

    assert drawn.positive.mean(axis=0) == pytest.approx([0, 1, 400], rel=0.05)
    assert drawn.positive.var(axis=0) == pytest.approx([0, 1, 400], rel=0.1)
    assert drawn.negative.mean(axis=0) == pytest.approx([7, 0, 2], rel=0.05)
    assert (drawn.positive[:, 1] == 0).mean() == pytest.approx(np.exp(-1), abs=0.03)
    assert abs(np.corrcoef(drawn.positive[:, 2], drawn.negative[:, 2])[0, 1]) < 0.06


def test_resample_does_not_depend_on_the_others() -> None:
    tally = _sample(np.random.default_rng(8), 100)

    assert (tally.resampled(range(3, 5), seed=1).positive == tally.resampled(range(10), seed=1).positive[3:5]).all()


def test_score_that_moves_by_a_digit_moves_the_interval_by_less_than_its_width() -> None:
    rng = np.random.default_rng(9)
    labels, logits = (rng.random(500) < 0.5).astype(np.float32), rng.integers(0, 300, 500) / 7
    moved = logits.copy()
    moved[:5] += 1e-6

    before, after = (
        pointwise_estimates(Tally.of(labels, scores), POINTWISE, resamples=400, seed=0)["auc"]
        for scores in (logits, moved)
    )

    assert (after.low, after.high) == pytest.approx((before.low, before.high), abs=0.05 * (before.high - before.low))
