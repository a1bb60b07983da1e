"""Item similarities, hand-computed and of the library `implicit`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.models.matrix_fixtures import scores_after, some_matrix

MATRIX = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 1, 0], [1, 0, 0, 1]], dtype=float)


def cosine(matrix: np.ndarray, *, shrinkage: float = 0.0) -> np.ndarray:
    products, lengths = matrix.T @ matrix, np.linalg.norm(matrix, axis=0)
    nearness = products / (np.outer(lengths, lengths) + shrinkage)
    np.fill_diagonal(nearness, 0)
    return nearness


def only_the_nearest(nearness: np.ndarray, number: int) -> np.ndarray:
    """Keep the largest of each row; none of these rows has ties."""
    bound = -np.sort(-nearness, axis=1)[:, [number - 1]]
    return np.where(nearness >= bound, nearness, 0)


def test_cosine_by_hand() -> None:
    scores = scores_after("item-knn", MATRIX, num_neighbors=3, shrinkage=0)

    # The first user has met items 0 and 1, of 4 and 2 users; two users have met both, and one has met 1 and 2.
    both, second = 2 / np.sqrt(4 * 2), 1 / np.sqrt(2 * 2)
    np.testing.assert_allclose(scores[0], [both, both, 2 / np.sqrt(4 * 2) + second, 1 / np.sqrt(4)], atol=1e-6)


@pytest.mark.parametrize("block", [1, 8, 1 << 20])
def test_shrinkage_is_added_to_the_product_of_the_lengths(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("recsys_cli.models.item_knn.model._BLOCK", block)
    scores = scores_after("item-knn", MATRIX, num_neighbors=3, shrinkage=5)

    np.testing.assert_allclose(scores, MATRIX @ cosine(MATRIX, shrinkage=5), atol=1e-6)


def test_only_nearest_neighbors_count_and_longer_histories_fold_in() -> None:
    matrix, later = some_matrix(200, 9), some_matrix(200, 9, seed=1)
    nearness = only_the_nearest(cosine(matrix), 3)
    assert (np.count_nonzero(nearness, axis=1) == 3).all()

    np.testing.assert_allclose(
        scores_after("item-knn", matrix, num_neighbors=3, shrinkage=0), matrix @ nearness.T, atol=1e-5
    )
    np.testing.assert_allclose(
        scores_after("item-knn", matrix, later=later, num_neighbors=3, shrinkage=0), later @ nearness.T, atol=1e-5
    )


def test_products_are_the_same_without_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = some_matrix(60, 15)
    with_mkl = scores_after("item-knn", matrix, num_neighbors=5)
    monkeypatch.setattr("torch.backends.mkl.is_available", lambda: False)

    np.testing.assert_allclose(scores_after("item-knn", matrix, num_neighbors=5), with_mkl, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Method expects CSR input")  # it says so of a matrix that it made itself
@pytest.mark.parametrize("weighting", ["bm25", "tfidf"])
def test_similarities_equal_those_of_implicit(weighting: str) -> None:
    nearest_neighbours = pytest.importorskip("implicit.nearest_neighbours")
    sparse = pytest.importorskip("scipy.sparse")
    matrix = some_matrix(60, 15)
    seen = sparse.csr_matrix(matrix)
    library = {
        "bm25": lambda: nearest_neighbours.BM25Recommender(K=6, K1=1.2, B=0.75, num_threads=1),
        "tfidf": lambda: nearest_neighbours.TFIDFRecommender(K=6, num_threads=1),
    }[weighting]()
    library.fit(seen, show_progress=False)

    # The library counts an item among its own neighbours.
    scores = scores_after(
        "item-knn", matrix, num_neighbors=5, weighting=weighting, normalize=weighting == "tfidf", shrinkage=0
    )

    theirs = library.similarity.toarray()
    np.fill_diagonal(theirs, 0)
    np.testing.assert_allclose(scores, matrix @ theirs.T, rtol=1e-4, atol=1e-5)
    assert np.count_nonzero(theirs) == 5 * 15
