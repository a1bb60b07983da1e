"""EASE between near items only, against the formula of its paper and with all weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.models.matrix import ease, near_weights
from recsys_cli.models.matrix.near_weights import Largest, pool_of
from recsys_cli.models.matrix.neighbors import Neighbors
from recsys_cli.models.model import Model
from tests.unit.models.matrix_fixtures import fitted, scores_after, some_matrix


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for all weights."""
    monkeypatch.setattr(ease, "most_items", lambda *_: 0)
    monkeypatch.setattr(ease, "_fit_with", lambda *_: 0)
    monkeypatch.setattr(near_weights, "_POPULAR", 0)


def groups(*, number: int, num_users: int, num_items: int) -> np.ndarray:
    """Groups of items without a user in common, the first items being the most popular."""
    matrix = np.kron(np.eye(number), some_matrix(num_users, num_items))
    return matrix[:, np.argsort(-matrix.sum(0), kind="stable")]


@pytest.mark.parametrize("head", [0, 7, 1_000], ids=["no head", "a small head", "all in the head"])
def test_weights_equal_the_formula_where_items_are_far_without_common_users(
    monkeypatch: pytest.MonkeyPatch, no_memory: None, head: int
) -> None:
    matrix = groups(number=4, num_users=40, num_items=12)
    inverse = np.linalg.inv(matrix.T @ matrix + 5 * np.eye(matrix.shape[1]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    monkeypatch.setattr(ease, "_BYTES_OF_A_COUNT", (2_048 << 20) // max(1, head**2))
    monkeypatch.setattr(near_weights, "_BLOCK", 48 * 5)

    model, scores = fitted("ease", matrix, regularization=5.0)

    assert isinstance(model.learnt, Neighbors)
    np.testing.assert_allclose(scores, matrix @ weights, atol=1e-5)


def test_a_column_is_the_regression_on_its_near_items(monkeypatch: pytest.MonkeyPatch, no_memory: None) -> None:
    """With one item per regression, the weights of an item are those of its two nearest items alone."""
    monkeypatch.setattr(near_weights, "_OWN", 2)
    monkeypatch.setattr(near_weights, "POOL", 3)
    matrix = some_matrix(60, 12)
    matrix = matrix[:, np.argsort(-matrix.sum(0), kind="stable")]
    counts, users = matrix.T @ matrix, matrix.sum(0)

    model, _ = fitted("ease", matrix, regularization=5.0)

    places, weights = model.learnt.places.numpy(), model.learnt.weights.numpy()
    for item in range(12):
        gain = ((counts[:, item] - users * users[item] / 60) / np.sqrt(users + 5)).astype(np.float32)
        gain[item] = -np.inf
        near = np.argsort(-gain, kind="stable")[:2]
        solved = np.linalg.solve(counts[np.ix_(near, near)] + 5 * np.eye(2), counts[near, item])
        found = {places[0, at]: weights[at] for at in np.flatnonzero(places[1] == item) if weights[at]}
        assert found == pytest.approx(dict(zip(near, solved, strict=True)), abs=1e-5)


def test_popular_items_are_in_all_regressions(monkeypatch: pytest.MonkeyPatch, no_memory: None) -> None:
    """With all items popular, a regression on one near item is that on all."""
    monkeypatch.setattr(near_weights, "_OWN", 1)
    monkeypatch.setattr(near_weights, "POOL", 2)
    monkeypatch.setattr(near_weights, "_POPULAR", 12)
    matrix = some_matrix(60, 12)
    inverse = np.linalg.inv(matrix.T @ matrix + 5 * np.eye(12))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)

    np.testing.assert_allclose(fitted("ease", matrix, regularization=5.0)[1], matrix @ weights, atol=1e-5)


def test_near_weights_rank_like_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regressions on 60 of 320 items find as many held-out items as those on all."""
    monkeypatch.setattr(near_weights, "POOL", 60)
    monkeypatch.setattr(near_weights, "_OWN", 20)
    monkeypatch.setattr(near_weights, "_POPULAR", 0)
    matrix = groups(number=8, num_users=60, num_items=40)
    draw = np.random.default_rng(0)
    matrix = np.maximum(matrix, draw.random(matrix.shape) < 0.02)
    held_out = (draw.random(matrix.shape) < 0.2) & (matrix > 0)
    train = matrix * ~held_out

    def recall(model: Model, scores: np.ndarray) -> float:
        assert isinstance(model.learnt, Neighbors) == (model.config.memory_mib == 1)
        best = np.argsort(-np.where(train > 0, -np.inf, scores), axis=1)[:, :10]
        return float(np.take_along_axis(held_out, best, axis=1).sum() / held_out.sum())

    every = recall(*fitted("ease", train, regularization=50.0))
    monkeypatch.setattr(ease, "most_items", lambda num_users, budget: 0 if budget == 1 << 20 else 1_000)
    monkeypatch.setattr(ease, "_fit_with", lambda *_: 0)
    near = recall(*fitted("ease", train, regularization=50.0, memory_mib=1))

    assert every > 0.38
    assert near > 0.98 * every


def test_items_beyond_the_memory_budget_have_fewer_weights() -> None:
    """A mebibyte holds all weights of 418 items, and 30 per item of 430."""
    model, scores = fitted("ease", some_matrix(500, 430), memory_mib=1, regularization=50.0)

    assert model.left_out is None
    assert len(model.learnt.weights) == 30 * 430
    assert scores.any(axis=0).all()


def test_an_item_without_near_items_has_no_weights(no_memory: None) -> None:
    assert not scores_after("ease", np.eye(6)).any()


def test_the_largest_weights_are_kept_in_bounded_memory() -> None:
    weights = torch.randn(1_000, generator=torch.Generator().manual_seed(0))
    largest = Largest(50)

    for start in range(0, 1_000, 40):
        largest.add(torch.arange(start, start + 40), weights[start : start + 40])
        assert largest._buffered <= 50 * 3 + 40
    keys, kept = largest.kept()

    assert set(keys.tolist()) == set(weights.abs().topk(50).indices.tolist())
    torch.testing.assert_close(kept, weights[keys])


def test_a_pool_has_the_near_items_of_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_weights, "POOL", 5)
    nearest = np.array([[1, 2], [0, 3], [0, -1], [1, 4], [3, 5], [4, -1]], np.int32)

    columns, items = pool_of(np.array([0, 1, 3, 4]), nearest)

    assert columns.tolist() == [0, 1, 3]  # 4 would be with 5, one more than five items
    assert items.tolist() == [0, 1, 2, 3, 4]
