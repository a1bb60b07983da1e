"""SLIM against scikit-learn's elastic net, item by item."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet

from recsys_cli.models.model import LeftOut
from recsys_cli.models.slim import descent
from tests.unit.models.matrix_fixtures import fitted, some_matrix


def brute_force(matrix: np.ndarray, *, l1: float, l2: float) -> np.ndarray:
    """One elastic net for each item from all others. scikit-learn divides the squares by the number of rows."""
    num_users, num_items = matrix.shape
    weights = np.zeros((num_items, num_items))
    for item in range(num_items):
        others = np.delete(np.arange(num_items), item)
        net = ElasticNet(
            alpha=(l1 + l2) / num_users, l1_ratio=l1 / (l1 + l2), positive=True, fit_intercept=False,
            tol=1e-10, max_iter=100_000,
        )  # fmt: skip
        weights[others, item] = net.fit(matrix[:, others], matrix[:, item]).coef_
    return weights


@pytest.mark.parametrize(("l1", "l2"), [(1.0, 5.0), (6.0, 0.5)])
@pytest.mark.parametrize("together", [3, 64])
def test_weights_are_those_of_an_elastic_net_for_each_item(
    monkeypatch: pytest.MonkeyPatch, l1: float, l2: float, together: int
) -> None:
    monkeypatch.setattr(descent, "_BLOCK", together)
    matrix = some_matrix(50, 10)
    weights = brute_force(matrix, l1=l1, l2=l2)

    model, scores = fitted("slim", matrix, l1=l1, l2=l2, tolerance=1e-6, max_sweeps=1000)

    np.testing.assert_allclose(scores, matrix @ weights, atol=1e-4)
    assert (model.learnt.weights >= 0).all()
    assert 0.1 < np.mean(weights > 0) < 0.9


def test_blocks_of_columns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = some_matrix(50, 10)
    whole = fitted("slim", matrix, tolerance=1e-6)[1]

    monkeypatch.setattr("recsys_cli.models.slim.model._BLOCK", 3)

    np.testing.assert_allclose(fitted("slim", matrix, tolerance=1e-6)[1], whole, atol=1e-5)


def test_items_with_few_users_have_no_weights_and_longer_histories_fold_in() -> None:
    matrix = some_matrix(50, 10)
    matrix[:, 9] = 0
    matrix[:2, 9] = 1
    later = np.maximum(matrix, some_matrix(50, 10, seed=1))

    model, scores = fitted("slim", matrix, l1=2.0, l2=1.0, tolerance=1e-6)
    folded_in = fitted("slim", matrix, later=later, l1=2.0, l2=1.0, tolerance=1e-6)[1]

    weights = brute_force(matrix, l1=2.0, l2=1.0)
    assert not weights[9].any()
    assert not weights[:, 9].any()
    assert model.kept.tolist().index(9 + 3) == 9
    np.testing.assert_allclose(scores, matrix @ weights, atol=1e-4)
    np.testing.assert_allclose(folded_in, later @ weights, atol=1e-4)


def test_items_beyond_the_cap_score_0() -> None:
    matrix = some_matrix(50, 10)
    order = np.argsort(-matrix.sum(0), kind="stable")

    model, scores = fitted("slim", matrix, max_items=4)

    assert not scores[:, np.sort(order[4:])].any()
    assert scores[:, order[:4]].any()
    assert model.left_out == LeftOut(6, 10, float(matrix[:, order[4:]].sum() / matrix.sum()))
    assert fitted("slim", matrix)[0].left_out is None
