"""Item-to-item models against their formulas and implicit, and the matrix of interactions below them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import ElasticNet

from recsys_cli.features.schema import FIRST, Role
from recsys_cli.interactions import Interactions
from recsys_cli.models.interaction_matrix import InteractionMatrix, spans
from recsys_cli.models.item_to_item import gram
from recsys_cli.models.matrix import slim
from recsys_cli.models.model import LeftOut
from tests.unit.models.matrix_fixtures import fitted, rows_of_matrix, schema_of, scores_after, some_matrix

SMALL_MATRIX = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]])
USER, ITEM = (schema_of(SMALL_MATRIX).only(role) for role in (Role.USER, Role.ITEM))
CPU = torch.device("cpu")


def history(rows: Interactions, positive_only: bool = False) -> InteractionMatrix:
    return InteractionMatrix.of(rows, USER, ITEM, positive_only=positive_only, device=CPU)


def test_of_users_allows_any_order_and_duplicates() -> None:
    lists = history(rows_of_matrix(SMALL_MATRIX)).of_users(torch.tensor([5, 4, 3, 5, 0]))

    assert lists.offsets.tolist() == [0, 3, 3, 5, 8, 8]
    assert lists.values.tolist() == [3, 4, 6, 3, 5, 3, 4, 6]


def test_repeated_interactions_count_once_and_shared_ids_are_excluded() -> None:
    rows = Interactions(
        np.array([5, 5, 2, 5], np.int32), np.array([4, 4, 4, 1], np.int32), np.array([0, 1, 1, 1], np.float32)
    )

    assert history(rows).items.tolist() == [4]
    assert history(rows).counts.tolist() == [0, 0, 0, 0, 1, 0, 0]


def test_positive_only_ignores_label_0() -> None:
    rows = rows_of_matrix(SMALL_MATRIX)
    liked = Interactions(rows.user_idx, rows.item_idx, np.array([1, 0, 0, 0, 1], np.float32))

    assert history(liked, positive_only=True).of_users(torch.tensor([3, 5])).values.tolist() == [3, 6]


def test_renumbered_drops_items_with_negative_indices() -> None:
    names = torch.full((7,), -1)
    names[torch.tensor([6, 3])] = torch.tensor([0, 1])

    renamed = history(rows_of_matrix(SMALL_MATRIX)).renumbered(names, num_items=2)

    assert renamed.dense(FIRST, FIRST + 3).tolist() == [[0, 1], [0, 0], [1, 1]]


@pytest.mark.parametrize("ratio", [0, 1_000_000], ids=["pairs", "dense blocks"])
@pytest.mark.parametrize("block", [1, 20, 1 << 20])
def test_gram_is_the_product_of_the_matrix_with_itself(monkeypatch: pytest.MonkeyPatch, block: int, ratio: int) -> None:
    monkeypatch.setattr("recsys_cli.models.item_to_item._PRODUCTS_OF_A_PAIR", ratio)
    matrix = some_matrix(13, 7)
    user, item = (schema_of(matrix).only(role) for role in (Role.USER, Role.ITEM))

    found = gram(InteractionMatrix.of(rows_of_matrix(matrix), user, item, device=CPU), block=block)

    assert np.array_equal(found.numpy()[FIRST:, FIRST:], matrix.T @ matrix)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_spans_cover_all_rows_with_bounded_sizes(most: int) -> None:
    lengths = torch.tensor([0, 2, 0, 5, 1, 1, 1, 0, 0])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])

    pieces = list(spans(offsets, max_elements=most))

    assert [row for piece in pieces for row in range(piece.start, piece.stop)] == list(range(9))
    assert all(lengths[piece].sum() <= most + lengths[piece.start] for piece in pieces)


def test_no_rows_are_no_spans() -> None:
    assert list(spans(torch.zeros(1, dtype=torch.int64), max_elements=5)) == []


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
    monkeypatch.setattr("recsys_cli.models.matrix.item_knn._BLOCK", block)
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
    monkeypatch.setattr(slim, "_BLOCK", together)
    matrix = some_matrix(50, 10)
    weights = brute_force(matrix, l1=l1, l2=l2)

    model, scores = fitted("slim", matrix, l1=l1, l2=l2, tolerance=1e-6, max_sweeps=1000)

    np.testing.assert_allclose(scores, matrix @ weights, atol=1e-4)
    assert (model.learnt.weights >= 0).all()
    assert 0.1 < np.mean(weights > 0) < 0.9


def test_blocks_of_columns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = some_matrix(50, 10)
    whole = fitted("slim", matrix, tolerance=1e-6)[1]

    monkeypatch.setattr("recsys_cli.models.matrix.slim._MAX_COLUMNS", 3)

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
