"""The baselines on an example made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.evaluation.baselines import POINTWISE, RANKING
from recsys_cli.interactions import Interactions

TRAIN = Interactions(
    np.array([3, 4, 5, 6, 3], np.int32), np.array([3, 3, 3, 4, 5], np.int32), np.array([1, 1, 0, 0, 1], np.float32)
)


def _probabilities(name: str, *items: int) -> list[float]:
    rows = Interactions(np.full(len(items), 3, np.int32), np.array(items, np.int32), np.zeros(len(items), np.float32))
    return (1 / (1 + np.exp(-POINTWISE[name].fit(TRAIN, num_items=8).logits(rows)))).tolist()


def test_constant_predicts_the_train_mean() -> None:
    assert _probabilities("constant", 3, 7, 2) == pytest.approx([0.6, 0.6, 0.6])


def test_item_mean_is_smoothed_by_five_rows_of_the_overall_mean() -> None:
    assert _probabilities("item mean", 3, 4, 5) == pytest.approx([(2 + 3) / 8, 3 / 6, (1 + 3) / 6])


def test_item_mean_of_an_unknown_item_is_the_overall_mean() -> None:
    assert _probabilities("item mean", 2, 7) == pytest.approx([0.6, 0.6])


def test_popularity_counts_train_rows_whatever_their_label() -> None:
    scores = RANKING["popularity"].fit(TRAIN, num_items=8).scores(np.array([3, 9]), np.array([5, 3, 4, 7]))

    assert scores.tolist() == [[1, 3, 1, 0], [1, 3, 1, 0]]


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_baseline_is_finite_without_any_train_row(name: str) -> None:
    nothing = Interactions(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))

    assert np.isfinite(POINTWISE[name].fit(nothing, num_items=8).logits(TRAIN)).all()
