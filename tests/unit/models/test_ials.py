"""Alternating least squares: the library's item factors, and our fold-in of longer histories."""

from __future__ import annotations

import builtins

import numpy as np
import pytest
import torch

from recsys_cli.errors import MissingExtraError
from recsys_cli.features.schema import FIRST
from recsys_cli.interactions import Interactions
from recsys_cli.models import build
from recsys_cli.models.configs.matrix import IALSConfig
from recsys_cli.models.interaction_matrix import InteractionMatrix
from recsys_cli.models.matrix import ials
from recsys_cli.models.model import Model, TrainingContext
from tests.unit.models.matrix_fixtures import context_of, fitted, schema_of, scores_after, some_matrix

OPTIONS = {"embedding_dim": 8, "iterations": 4}


def solved(strengths: np.ndarray, items: np.ndarray, *, regularization: float, alpha: float) -> np.ndarray:
    """Return the best vectors of users, as the paper says (eq. 4): c = 1 + alpha r, and p = 1 where r > 0."""
    found = np.zeros((len(strengths), items.shape[1]))
    for user, row in enumerate(strengths):
        confidence = 1 + alpha * row
        left = items.T @ (confidence[:, None] * items) + regularization * np.eye(items.shape[1])
        found[user] = np.linalg.solve(left, items.T @ (confidence * (row > 0)))
    return found


def counted(counts: np.ndarray) -> TrainingContext:
    """Return interactions where a pair comes so many times."""
    users, items = np.nonzero(counts)
    times = counts[users, items].astype(int)
    users, items = (np.repeat(ids + FIRST, times).astype(np.int32) for ids in (users, items))
    return TrainingContext(lambda: Interactions(users, items, np.zeros(len(users), np.float32)), dict)


def rated(ratings: np.ndarray) -> TrainingContext:
    """Return interactions with a label that is a number."""
    users, items = np.nonzero(ratings)
    labels = ratings[users, items].astype(np.float32)
    users, items = ((ids + FIRST).astype(np.int32) for ids in (users, items))
    return TrainingContext(lambda: Interactions(users, items, labels, mean=float(labels.mean())), dict)


def model_of(matrix: np.ndarray, context: TrainingContext, **options: object) -> Model:
    torch.manual_seed(0)
    model = build("ials", {**OPTIONS, **options}, schema_of(matrix))
    model.fit(context)
    model.set_context(context)
    return model


@pytest.mark.parametrize("alpha", [0.5, 5.0])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_user_factors_are_the_least_squares_solution_for_the_history(
    monkeypatch: pytest.MonkeyPatch, alpha: float, block: int
) -> None:
    monkeypatch.setattr(ials, "_BLOCK", block)
    matrix, later = some_matrix(40, 25), some_matrix(40, 25, seed=1)
    later[7] = 0

    model, scores = fitted("ials", matrix, later=later, alpha=alpha, regularization=0.5, **OPTIONS)

    items = model.items.numpy()[3:].astype(np.float64)
    expected = solved(later, items, regularization=0.5, alpha=alpha) @ items.T
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert not scores[7].any()


@pytest.mark.parametrize("strengths", ["ones", "counts", "ratings"])
@pytest.mark.parametrize("alpha", [1.0, 4.0])
def test_item_factors_are_a_fixed_point_of_dense_als(strengths: str, alpha: float) -> None:
    """The paper's own step, solved densely for users and then for items, changes nothing any more."""
    matrix = some_matrix(40, 25)
    if strengths != "ones":
        matrix *= np.random.default_rng(0).integers(1, 6, matrix.shape)
    context = rated(matrix) if strengths == "ratings" else counted(matrix)
    options = {"regularization": 2.0, "alpha": alpha}

    model = model_of(matrix, context, embedding_dim=3, iterations=300, **options)

    items = model.items.numpy()[3:].astype(np.float64)
    users = solved(matrix, items, **options)
    np.testing.assert_allclose(model.user_vectors(torch.arange(40) + FIRST).numpy(), users, atol=1e-4)
    np.testing.assert_allclose(solved(matrix.T, users, **options), items, atol=2e-3)
    assert np.abs(items).max() > 0.3


def test_alpha_weights_interactions() -> None:
    """By default too an interaction counts for more than a pair without one."""
    matrix = some_matrix(60, 30)
    errors = []
    for options in ({"alpha": 1e-6}, {"alpha": 1.0}, {}):
        scores = fitted("ials", matrix, embedding_dim=4, regularization=1.0, **options)[1]
        errors.append((1 - scores[matrix > 0]).mean())

    assert errors[0] > errors[1] + 0.05
    assert errors[0] > errors[2] + 0.05


def test_labels_that_are_not_positive_are_no_interactions() -> None:
    matrix = some_matrix(20, 10)
    disliked = np.where(some_matrix(20, 10, seed=1) > matrix, -2.0, matrix)

    found, expected = (model_of(matrix, context).items for context in (rated(disliked), rated(matrix)))

    torch.testing.assert_close(found, expected)


def test_recommendations_are_those_of_implicit_for_a_longer_history() -> None:
    als = pytest.importorskip("implicit.cpu.als")
    sparse = pytest.importorskip("scipy.sparse")
    matrix, later = some_matrix(40, 25), some_matrix(40, 25, seed=1)
    model, scores = fitted("ials", matrix, later=later, alpha=2.0, regularization=1.0, **OPTIONS)
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


def test_planted_groups_are_recovered() -> None:
    matrix = some_matrix(80, 30)
    scores = scores_after("ials", matrix, embedding_dim=4)
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
        model.fit(context_of(matrix))


def test_the_default_penalty_grows_with_confidence() -> None:
    """Four times the confidence is twice the penalty; a user's weight and an item's count, each averaged over interactions."""
    matrix = np.array([[1, 1, 1], [1, 0, 0]], dtype=float)
    chosen = [model_of(matrix, counted(matrix), alpha=alpha).chosen["regularization"] for alpha in (1.0, 7.0)]

    by_users, by_items = (3 * 3 + 1 * 1) / 4, (2 * 2 + 1 + 1) / 4
    assert chosen[0] == pytest.approx(np.sqrt(2 * np.sqrt(by_users * by_items)))
    assert chosen[1] == pytest.approx(2 * chosen[0])
    assert model_of(matrix, counted(matrix), regularization=7.0, alpha=2.0).chosen == {}


@pytest.mark.parametrize("strength", [1, 3])
def test_default_alpha_grows_with_sparsity(strength: int) -> None:
    """Of 4 x 9 pairs, 12 interactions: the root of 3, in units of their strength."""
    matrix = np.zeros((5, 9))
    matrix[np.repeat(np.arange(4), 3), [0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 4, 8]] = strength

    model = model_of(matrix, counted(matrix))

    assert model.chosen["alpha"] == pytest.approx(np.sqrt(3) / strength)
    given = model_of(matrix, counted(matrix), alpha=model.chosen["alpha"])
    torch.testing.assert_close(model.items, given.items)
    assert "alpha" in model.state_dict()
    assert "alpha" not in given.state_dict()


@pytest.mark.parametrize("max_held_out", [2_000_000, 0])
def test_popularity_alone_takes_a_larger_penalty(monkeypatch: pytest.MonkeyPatch, max_held_out: int) -> None:
    """Without taste the factors of few interactions are noise; with too many interactions the rule stays."""
    monkeypatch.setattr(ials, "_MAX_HELD_OUT", max_held_out)
    random = np.random.default_rng(0)
    popularity = 1 / np.arange(1, 201)
    items = [np.sort(random.choice(200, 4, replace=False, p=popularity / popularity.sum())) for _ in range(600)]
    matrix = InteractionMatrix(4 * torch.arange(601), torch.from_numpy(np.concatenate(items)), 200)
    confidence = torch.full((2_400,), 11.0)

    factor = ials.choose_penalty(matrix, confidence, IALSConfig(iterations=3)) / ials.penalty_of(matrix, confidence)

    assert factor in ({2, 4, 8} if max_held_out else {1})
