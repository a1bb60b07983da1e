"""Metrics of grouped rows equal those of single rows and of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics import roc_auc_score

from recsys_cli.evaluation.curves import reliability_curve, roc_curve
from recsys_cli.metrics import POINTWISE
from recsys_cli.metrics.metric import ScoreCounts


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = rng.normal(0.3, 2, 20_000).astype(np.float32)
    return (rng.random(20_000) < 1 / (1 + np.exp(-logits))).astype(np.float32), logits


def test_auc_and_log_loss_equal_those_of_training_and_scikit_learn(rows) -> None:
    labels, logits = rows
    tally = ScoreCounts.of(labels, logits)

    auc, loss = POINTWISE["auc"].compute(tally), POINTWISE["log_loss"].compute(tally)

    assert auc == pytest.approx(POINTWISE["auc"].of_rows(labels, logits), abs=1e-12)
    assert auc == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)
    assert loss == pytest.approx(POINTWISE["log_loss"].of_rows(labels, logits), abs=1e-12)
    assert loss == pytest.approx(sklearn_log_loss(labels, 1 / (1 + np.exp(-logits.astype(np.float64)))), abs=1e-12)


def test_log_loss_of_certain_and_wrong_rows_is_finite() -> None:
    tally = ScoreCounts.of(np.array([1, 0], np.float32), [-1000.0, 1000.0])

    assert POINTWISE["log_loss"].compute(tally) == 1000


def test_compressed_keeps_the_rows_and_hardly_moves_the_figures(rows) -> None:
    tally = ScoreCounts.of(*rows)
    small = tally.compressed(500)

    assert len(small.logits) == 500
    assert small.rows.sum() == 20_000
    assert small.positive.sum() == rows[0].sum()
    assert (np.diff(small.logits) > 0).all()
    for name in ("auc", "log_loss", "accuracy", "calibration"):
        exact, close = (POINTWISE[name].compute(t) for t in (tally, small))
        assert close == pytest.approx(exact, abs=2e-3)


def test_compressed_keeps_few_scores() -> None:
    tally = ScoreCounts.of(np.array([0, 1, 1], np.float32), [1.0, 2.0, 2.0])

    assert tally.compressed(2) is tally
    assert tally.compressed(1).rows.tolist() == [3]


def test_area_below_the_roc_curve_is_the_auc(rows) -> None:
    curve = roc_curve(ScoreCounts.of(*rows))

    assert (curve.x[0], curve.y[0], curve.x[-1], curve.y[-1]) == (0, 0, 1, 1)
    assert len(curve.x) <= 201
    steps = zip(curve.x, curve.x[1:], curve.y, curve.y[1:], strict=False)
    area = sum((right - left) * (low + high) / 2 for left, right, low, high in steps)
    assert area == pytest.approx(POINTWISE["auc"].compute(ScoreCounts.of(*rows)), abs=1e-3)


def test_roc_curve_of_a_constant_is_the_diagonal() -> None:
    curve = roc_curve(ScoreCounts.of(np.array([0, 1, 1], np.float32), [0.5, 0.5, 0.5]))

    assert (curve.x, curve.y) == ((0, 1), (0, 1))


def test_roc_curve_of_one_class_is_empty() -> None:
    assert roc_curve(ScoreCounts.of(np.ones(3, np.float32), [1.0, 2.0, 3.0])).x == ()


def test_reliability_curve_of_honest_scores_is_near_the_diagonal(rows) -> None:
    curve = reliability_curve(ScoreCounts.of(*rows))

    assert len(curve.x) == 15
    assert curve.y == pytest.approx(curve.x, abs=0.05)
