"""EASE against the formula of its paper, by items and by users."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from met_matrix import fitted, scores_after, some_matrix

from recsys_cli.batch import Batch
from recsys_cli.features.schema import FIRST


def weights_by_the_formula(matrix: np.ndarray, regularization: float) -> np.ndarray:
    inverse = np.linalg.inv(matrix.T @ matrix + regularization * np.eye(matrix.shape[1]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return weights


@pytest.mark.parametrize("shape", [(30, 12), (12, 30), (20, 20)], ids=["few items", "few users", "as many"])
@pytest.mark.parametrize("regularization", [0.5, 50.0])
def test_scores_are_those_of_the_formula_also_for_a_longer_history(
    shape: tuple[int, int], regularization: float
) -> None:
    matrix = some_matrix(*shape)
    later = np.maximum(matrix, some_matrix(*shape, seed=1))
    weights = weights_by_the_formula(matrix, regularization)

    scores = scores_after("ease", matrix, regularization=regularization)
    folded_in = scores_after("ease", matrix, later=later, regularization=regularization)

    np.testing.assert_allclose(scores, matrix @ weights, atol=1e-5)
    np.testing.assert_allclose(folded_in, later @ weights, atol=1e-5)
    assert np.abs(folded_in - scores).max() > 0.01


@pytest.mark.parametrize("shape", [(30, 12), (12, 30)], ids=["few items", "few users"])
@pytest.mark.parametrize("most", [5, 1 << 20])
def test_pairs_score_as_the_formula_says_also_what_was_met(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], most: int
) -> None:
    monkeypatch.setattr("recsys_cli.models.item_to_item._MOST", most)
    monkeypatch.setattr("recsys_cli.models.ease.model._BLOCK", most * 12)
    matrix = some_matrix(*shape)
    model, scores = fitted("ease", matrix)
    users, items = (torch.from_numpy(places).int() + FIRST for places in np.indices(shape).reshape(2, -1))

    pairs = model.score(Batch({"user": users, "item": items}, {}))

    np.testing.assert_allclose(pairs.numpy().reshape(shape), scores, atol=1e-5)


def test_items_beyond_the_cap_score_0_and_change_nothing() -> None:
    matrix = some_matrix(40, 12)
    order = np.argsort(-matrix.sum(0), kind="stable")
    kept = np.sort(order[:5])

    scores = scores_after("ease", matrix, max_items=5)

    np.testing.assert_allclose(scores[:, kept], scores_after("ease", matrix[:, kept]), atol=1e-6)
    assert not scores[:, np.sort(order[5:])].any()


def test_the_smaller_side_decides_what_is_kept() -> None:
    sizes = {}
    for shape in ((30, 12), (12, 30)):
        sizes[shape] = sum(buffer.numel() for buffer in fitted("ease", some_matrix(*shape))[0].learnt.buffers())

    assert sizes == {(30, 12): 12 * 12, (12, 30): 12 * 30 + 30}
