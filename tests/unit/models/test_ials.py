"""Alternating least squares: what the library learns, and our own folding in of longer histories."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
from met_matrix import fitted, known, schema_of, scores_after, some_matrix

from recsys_cli.errors import MissingExtraError
from recsys_cli.models import build
from recsys_cli.models.ials import model as ials

OPTIONS = {"dim": 8, "iterations": 4}


def best_scores(matrix: np.ndarray, items: np.ndarray, *, regularization: float, alpha: float) -> np.ndarray:
    """Solve for each user, as the paper says: what was met has the confidence alpha and all else 1."""
    scores = np.zeros(matrix.shape)
    for user, row in enumerate(matrix):
        confidence = np.where(row > 0, alpha, 1.0)
        left = items.T @ (confidence[:, None] * items) + regularization * np.eye(items.shape[1])
        scores[user] = items @ np.linalg.solve(left, items.T @ (confidence * row))
    return scores


@pytest.mark.parametrize("alpha", [1.0, 5.0])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_users_are_the_best_for_what_they_have_met_by_now(
    monkeypatch: pytest.MonkeyPatch, alpha: float, block: int
) -> None:
    monkeypatch.setattr(ials, "_BLOCK", block)
    matrix, later = some_matrix(40, 25), some_matrix(40, 25, seed=1)
    later[7] = 0

    model, scores = fitted("ials", matrix, later=later, alpha=alpha, regularization=0.5, **OPTIONS)

    items = model.items.numpy()[3:].astype(np.float64)
    expected = best_scores(later, items, regularization=0.5, alpha=alpha)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert not scores[7].any()


def test_recommendations_are_those_of_implicit_for_a_longer_history() -> None:
    als = pytest.importorskip("implicit.cpu.als")
    sparse = pytest.importorskip("scipy.sparse")
    matrix, later = some_matrix(40, 25), some_matrix(40, 25, seed=1)
    model, scores = fitted("ials", matrix, later=later, alpha=3.0, **OPTIONS)
    library = als.AlternatingLeastSquares(factors=8, regularization=1.0, alpha=3.0)
    library.item_factors = model.items.numpy()[3:].copy()
    library.user_factors = np.zeros((40, 8), np.float32)

    found, values = library.recommend(
        np.arange(40),
        sparse.csr_matrix(later.astype(np.float32)),
        N=5,
        filter_already_liked_items=True,
        recalculate_user=True,
    )

    ours = np.where(later > 0, -np.inf, scores)
    np.testing.assert_allclose(np.take_along_axis(ours, found, axis=1), values, atol=1e-4)
    np.testing.assert_allclose(-np.sort(-ours, axis=1)[:, :5], values, atol=1e-4)


def test_it_learns_the_two_groups() -> None:
    matrix = some_matrix(80, 30)
    scores = scores_after("ials", matrix, dim=4)
    same = np.arange(80)[:, None] % 2 == np.arange(30) % 2

    assert scores[same].mean() > scores[~same].mean() + 0.2


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object, **options: object) -> object:
        if name.startswith("implicit"):
            raise ImportError(name)
        return real(name, *rest, **options)

    matrix = some_matrix(10, 5)
    model = build("ials", {}, schema_of(matrix))
    monkeypatch.setattr(builtins, "__import__", without)

    with pytest.raises(MissingExtraError, match=r"model\.name=ials needs the 'implicit' extra"):
        model.fit(known(matrix))
