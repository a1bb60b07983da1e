"""EASE beyond its memory: conjugate gradients and the largest weights, against the formula of its paper and with all weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.models.matrix import ease, largest_weights
from recsys_cli.models.matrix.neighbors import Largest, Neighbors
from recsys_cli.models.model import Model
from tests.unit.models.matrix_fixtures import fitted, scores_after, some_matrix


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No room for all weights."""
    monkeypatch.setattr(ease, "most_items", lambda *_: 0)
    monkeypatch.setattr(ease, "_fit_with", lambda *_: 0)


def groups(*, number: int, num_users: int, num_items: int) -> np.ndarray:
    """Groups of items with few users in common, the first items being the most popular."""
    matrix = np.kron(np.eye(number), some_matrix(num_users, num_items))
    matrix = np.maximum(matrix, np.random.default_rng(0).random(matrix.shape) < 0.02)
    return matrix[:, np.argsort(-matrix.sum(0), kind="stable")]


def weights_of(matrix: np.ndarray, penalty: float) -> np.ndarray:
    inverse = np.linalg.inv(matrix.T @ matrix + penalty * np.eye(matrix.shape[1]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return weights


@pytest.mark.parametrize("head", [1, 7, 256])
@pytest.mark.parametrize("block", [5, 1_000])
def test_weights_equal_the_formula(monkeypatch: pytest.MonkeyPatch, no_memory: None, head: int, block: int) -> None:
    matrix = groups(number=4, num_users=40, num_items=12)
    monkeypatch.setattr(largest_weights, "_HEAD", head)
    monkeypatch.setattr(largest_weights, "_TOLERANCE", 1e-5)
    monkeypatch.setattr(largest_weights, "_BLOCK", (block, block))

    model, scores = fitted("ease", matrix, regularization=5.0)

    assert isinstance(model.learnt, Neighbors)
    np.testing.assert_allclose(scores, matrix @ weights_of(matrix, 5.0), atol=1e-4)


def test_the_largest_of_all_weights_are_kept(monkeypatch: pytest.MonkeyPatch, no_memory: None) -> None:
    matrix = groups(number=4, num_users=40, num_items=12)
    monkeypatch.setattr(ease, "_LARGEST", 6)
    monkeypatch.setattr(largest_weights, "_TOLERANCE", 1e-5)
    weights = weights_of(matrix, 5.0)
    least = np.sort(np.abs(weights), axis=None)[-6 * 48]

    scores = scores_after("ease", matrix, regularization=5.0)

    np.testing.assert_allclose(scores, matrix @ np.where(np.abs(weights) < least, 0, weights), atol=1e-4)


def test_the_largest_weights_rank_like_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eighteen weights per item of 320 find as many held-out items as all."""
    matrix = groups(number=8, num_users=60, num_items=40)
    draw = np.random.default_rng(0)
    held_out = (draw.random(matrix.shape) < 0.2) & (matrix > 0)
    train = matrix * ~held_out

    def recall(model: Model, scores: np.ndarray) -> float:
        assert isinstance(model.learnt, Neighbors) == (model.config.memory_mib == 1)
        best = np.argsort(-np.where(train > 0, -np.inf, scores), axis=1)[:, :10]
        return float(np.take_along_axis(held_out, best, axis=1).sum() / held_out.sum())

    every = recall(*fitted("ease", train, regularization=50.0))
    monkeypatch.setattr(ease, "most_items", lambda num_users, budget: 0 if budget == 1 << 20 else 1_000)
    monkeypatch.setattr(ease, "_fit_with", lambda *_: 0)
    largest = recall(*fitted("ease", train, regularization=50.0, memory_mib=1))

    assert every > 0.38
    assert largest > 0.98 * every


def test_the_penalty_is_that_of_all_weights(request: pytest.FixtureRequest) -> None:
    matrix = groups(number=8, num_users=60, num_items=40)
    every, _ = fitted("ease", matrix)
    request.getfixturevalue("no_memory")

    largest, _ = fitted("ease", matrix)

    assert isinstance(largest.learnt, Neighbors)
    assert largest.chosen == every.chosen


@pytest.mark.parametrize("penalty", [5.0, 500.0, 50_000.0])
def test_rare_items_have_weights_with_a_large_penalty(
    monkeypatch: pytest.MonkeyPatch, no_memory: None, penalty: float
) -> None:
    """The weights of an item with few users are small against those of the diagonal of the inverse."""
    matrix = groups(number=8, num_users=60, num_items=40)
    monkeypatch.setattr(largest_weights, "_HEAD", 40)
    monkeypatch.setattr(ease, "_LARGEST", 320)
    exact = matrix @ weights_of(matrix, penalty)

    scores = scores_after("ease", matrix, regularization=penalty)

    assert (scores.any(axis=0) == exact.any(axis=0)).all()
    assert np.linalg.norm(scores - exact) < 0.05 * np.linalg.norm(exact)


def test_items_beyond_the_memory_budget_have_fewer_weights() -> None:
    """A mebibyte holds all weights of 418 items, and 13 per item of 430."""
    model, scores = fitted("ease", some_matrix(500, 430), memory_mib=1, regularization=50.0)

    assert model.left_out is None
    assert len(model.learnt.weights) == 13 * 430
    assert scores.any(axis=0).all()


def test_an_item_without_common_users_has_no_weights(no_memory: None) -> None:
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
