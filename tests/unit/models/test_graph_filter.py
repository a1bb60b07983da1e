"""Graph filters against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.models.matrix import graph_filter
from recsys_cli.models.matrix.graph_filter import _singular_vectors
from tests.unit.models.matrix_fixtures import fitted, scores_after, some_matrix


def dense_scores(
    matrix: np.ndarray, later: np.ndarray, *, a: float, power: float, dim: int, smooth: float
) -> np.ndarray:
    users, items = matrix.sum(1, keepdims=True), matrix.sum(0)
    rows = matrix / users**a / items ** (1 - a)
    near = (rows.T @ rows) ** power
    np.fill_diagonal(near, 0)
    vectors = np.linalg.svd(matrix / np.sqrt(users) / np.sqrt(items))[2][:dim].T
    return later @ (near + smooth * (vectors / np.sqrt(items)[:, None]) @ (vectors.T * np.sqrt(items)))


@pytest.mark.parametrize("normalization", [0.5, 0.3])
@pytest.mark.parametrize(("power", "dim"), [(1.0, 0), (1.4, 3)])
def test_scores_equal_the_formula_also_for_a_longer_history(
    monkeypatch: pytest.MonkeyPatch, normalization: float, power: float, dim: int
) -> None:
    monkeypatch.setattr(graph_filter, "_BLOCK", 12 * 5)
    matrix, later = some_matrix(60, 12), np.maximum(some_matrix(60, 12), some_matrix(60, 12, seed=1))
    options = {"normalization": normalization, "power": power, "embedding_dim": dim, "smooth": 0.3}

    scores = scores_after("graph-filter", matrix, later=later, **options)

    expected = dense_scores(matrix, later, a=normalization, power=power, dim=dim, smooth=0.3)
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-4)


def test_the_largest_weights_are_kept() -> None:
    few, every = (
        fitted("graph-filter", some_matrix(60, 12), num_neighbors=number)[0].learnt.weights for number in (3, 11)
    )

    np.testing.assert_allclose(np.sort(few.numpy()), np.sort(every.numpy())[-36:], rtol=1e-6)


def test_singular_vectors_are_those_of_the_exact_decomposition() -> None:
    matrix = some_matrix(80, 40)

    found = _singular_vectors(matrix, 2)

    exact = np.linalg.svd(matrix)[2][:2].T
    np.testing.assert_allclose(np.abs(np.diag(found.T @ exact)), 1, atol=1e-3)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 1)])
def test_a_small_matrix_has_fewer_vectors_than_asked_for(shape: tuple[int, int]) -> None:
    assert np.isfinite(scores_after("graph-filter", np.ones(shape))).all()


def test_data_without_rows_are_ties() -> None:
    assert not scores_after("graph-filter", np.zeros((3, 4))).any()
