from __future__ import annotations

import math

import numpy as np
import pytest

from recsys_cli.metrics.labels import AUC, LOG_LOSS


def test_auc_of_hand_ranked_rows() -> None:
    assert AUC.of_rows([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]) == 0.75


def test_auc_counts_ties_half() -> None:
    assert AUC.of_rows([0, 1], [0.5, 0.5]) == 0.5
    assert AUC.of_rows([0, 1, 1], [1.0, 1.0, 2.0]) == 0.75
    assert AUC.of_rows([0, 0, 1, 1], [1, 2, 2, 3]) == 3.5 / 4


def test_auc_of_perfect_and_reversed_order() -> None:
    labels = np.array([0, 0, 0, 1, 1])
    assert AUC.of_rows(labels, np.arange(5)) == 1.0
    assert AUC.of_rows(labels, -np.arange(5)) == 0.0


def test_auc_ignores_the_order_of_rows_and_the_scale() -> None:
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 2, 1000), rng.integers(0, 50, 1000).astype(np.float32)
    order = rng.permutation(1000)
    assert (
        AUC.of_rows(labels, scores)
        == AUC.of_rows(labels[order], scores[order])
        == AUC.of_rows(labels, np.exp(scores / 10))
    )


@pytest.mark.parametrize("ties", [7, 100_000])
def test_auc_equals_scikit_learn(ties: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    labels, scores = rng.integers(0, 2, 5000), rng.integers(0, ties, 5000) / 3
    assert AUC.of_rows(labels, scores) == pytest.approx(metrics.roc_auc_score(labels, scores), abs=1e-12)


def test_auc_of_one_class_is_nan() -> None:
    assert math.isnan(AUC.of_rows([1, 1], [0.1, 0.2]))
    assert math.isnan(AUC.of_rows([0, 0], [0.1, 0.2]))
    assert math.isnan(AUC.of_rows([], []))


def test_log_loss_equals_the_definition() -> None:
    rng = np.random.default_rng(2)
    labels, logits = rng.integers(0, 2, 100), rng.normal(size=100)
    chance = 1 / (1 + np.exp(-logits))
    expected = -np.mean(labels * np.log(chance) + (1 - labels) * np.log(1 - chance))
    assert LOG_LOSS.of_rows(labels, logits) == pytest.approx(expected, abs=1e-12)


def test_log_loss_of_confident_rows_is_finite() -> None:
    assert LOG_LOSS.of_rows([1, 0], [1000.0, -1000.0]) == 0.0
    assert LOG_LOSS.of_rows([0], [1000.0]) == 1000.0


def test_log_loss_of_no_rows_is_nan() -> None:
    assert math.isnan(LOG_LOSS.of_rows([], []))
