"""EASE against the formula of its paper, by items and by users."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.features.schema import FIRST
from recsys_cli.models.interaction_matrix import InteractionMatrix, starts
from recsys_cli.models.matrix import ease
from tests.unit.models.matrix_fixtures import fitted, scores_after, some_matrix


def weights_by_the_formula(matrix: np.ndarray, regularization: float) -> np.ndarray:
    inverse = np.linalg.inv(matrix.T @ matrix + regularization * np.eye(matrix.shape[1]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return weights


@pytest.mark.parametrize("shape", [(30, 12), (12, 30), (20, 20)], ids=["few items", "few users", "as many"])
@pytest.mark.parametrize("regularization", [0.5, 50.0])
def test_scores_equal_the_formula_also_for_a_longer_history(shape: tuple[int, int], regularization: float) -> None:
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
def test_pairs_score_as_in_the_catalog_seen_items_included(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], most: int
) -> None:
    monkeypatch.setattr("recsys_cli.models.item_to_item._MAX_ELEMENTS", most)
    monkeypatch.setattr("recsys_cli.models.matrix.ease._BLOCK", most * 12)
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


def test_the_smaller_side_decides_the_size_of_the_weights() -> None:
    sizes = {}
    for shape in ((30, 12), (12, 30)):
        sizes[shape] = sum(buffer.numel() for buffer in fitted("ease", some_matrix(*shape))[0].learnt.buffers())

    assert sizes == {(30, 12): 12 * 12, (12, 30): 12 * 30 + 30}


def rank_without(matrix: np.ndarray, user: int, item: int, regularization: float) -> float:
    """Refit without one interaction, and return the rank of its item among unseen items."""
    matrix = matrix.copy()
    matrix[user, item] = 0
    scores = (matrix @ weights_by_the_formula(matrix, regularization))[user]
    others = scores[(matrix[user] == 0) & (np.arange(len(scores)) != item)]
    return (others > scores[item]).sum() + (others == scores[item]).sum() / 2


@pytest.mark.parametrize("regularization", [1.0, 50.0])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_ranks_of_held_out_items_equal_those_of_refitted_models(
    monkeypatch: pytest.MonkeyPatch, block: int, regularization: float
) -> None:
    monkeypatch.setattr(ease, "_HELD_OUT_BLOCK", block)
    matrix = some_matrix(30, 20)
    users, items = np.nonzero(matrix)
    history = history_of(matrix)
    inverse = ease.inverse_of(torch.from_numpy(matrix.T @ matrix), regularization)

    ranks = ease.held_out_ranks(history, torch.from_numpy(users), torch.from_numpy(items), inverse)

    expected = [rank_without(matrix, *pair, regularization) for pair in zip(users, items, strict=True)]
    np.testing.assert_array_equal(ranks.numpy(), expected)


def history_of(matrix: np.ndarray) -> InteractionMatrix:
    users, items = (torch.from_numpy(ids) for ids in np.nonzero(matrix))
    return InteractionMatrix(starts(users, len(matrix)), items, matrix.shape[1])


def tastes(num_users: int, num_items: int, *, directions: int, seed: int = 0) -> np.ndarray:
    """Interactions from tastes in few or many dimensions; the first items are the most popular."""
    draw = np.random.default_rng(seed)
    tastes = draw.normal(size=(num_users, directions)) @ draw.normal(size=(directions, num_items))
    logits = 1.5 * tastes / np.sqrt(directions) - np.linspace(0.5, 3, num_items)
    return (draw.random((num_users, num_items)) < 1 / (1 + np.exp(-logits))).astype(np.float64)


@pytest.mark.parametrize(("num_users", "num_items"), [(1500, 80), (150, 200)], ids=["many users", "few users"])
def test_the_chosen_penalty_is_near_the_best_on_held_out_rows(num_users: int, num_items: int) -> None:
    """Within 1 % of the NDCG of the best of the grid, where the worst loses 5 % or more."""
    matrix = tastes(num_users, num_items, directions=3)
    held_out = np.random.default_rng(1).random(matrix.shape) < 0.1 * matrix
    train = matrix * ~held_out

    def quality(regularization: float | None) -> float:
        scores = np.where(train > 0, -np.inf, scores_after("ease", train, regularization=regularization))
        order = np.argsort(-scores, axis=1)
        hits = np.take_along_axis(held_out, order, axis=1)
        return (hits / np.log2(np.arange(num_items) + 2)).sum() / held_out.sum()

    found = {regularization: quality(regularization) for regularization in ease.GRID}

    assert quality(None) > 0.99 * max(found.values())
    assert min(found.values()) < 0.95 * max(found.values())


def test_the_penalty_depends_on_rows_and_noise() -> None:
    few, many = (history_of(tastes(users, 60, directions=2)) for users in (60, 3000))

    assert ease.choose_penalty(few) < ease.choose_penalty(many)


def test_uninformative_data_get_the_default_penalty() -> None:
    assert fitted("ease", np.eye(6))[0].chosen == {"regularization": 200.0}
    assert fitted("ease", np.eye(6), regularization=7.0)[0].chosen == {}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_matrix_is_inverted_in_place(dtype: torch.dtype) -> None:
    matrix = torch.from_numpy(some_matrix(60, 20)).to(dtype)
    matrix = matrix.T @ matrix + 2 * torch.eye(20, dtype=dtype)
    expected, place = torch.linalg.inv(matrix.double()), matrix.data_ptr()

    inverse = ease.invert_(matrix)

    assert inverse.data_ptr() == place
    torch.testing.assert_close(inverse.double(), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("num_users", "num_items"), [(10**6, 18_918), (600, 178_956), (8_000, 18_918), (5_000, 21_474)]
)
def test_the_number_of_items_follows_from_the_memory_budget(num_users: int, num_items: int) -> None:
    """12,000 items times as many, or items times users, whichever allows more; Amazon Toys with 11,924 items is whole."""
    assert ease.most_items(num_users, 2_048 << 20) == num_items


def test_scores_are_the_same_within_a_small_memory_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = some_matrix(300, 200)
    exact, expected = fitted("ease", matrix, regularization=50.0)
    monkeypatch.setattr(ease, "_DENSE_BYTES", {torch.float64: 1 << 20, torch.float32: 6})

    small, found = fitted("ease", matrix, regularization=50.0)

    assert (exact._fits_float64, small._fits_float64) == (True, False)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("num_users", "num_items", "expected"),
    [(30, 600, 600), (600, 5_000, 1_000), (30_000, 5_000, 2_500), (3_000, 20_000, 2_823)],
    ids=["few items", "few users", "many users", "users fewer than items"],
)
def test_validation_uses_half_of_the_items_if_cheap_relative_to_the_fit(
    num_users: int, num_items: int, expected: int
) -> None:
    history = InteractionMatrix(torch.arange(num_users + 1), torch.arange(num_users) % num_items, num_items)

    assert ease._num_items(history) == expected


def test_search_of_the_penalty_keeps_the_counts() -> None:
    counts = torch.tensor([[3.0, 1.0], [1.0, 2.0]])

    inverse = ease.inverse_of(counts, 2.0)

    torch.testing.assert_close(inverse, torch.linalg.inv(torch.tensor([[5.0, 1.0], [1.0, 4.0]])))
    assert counts.tolist() == [[3.0, 1.0], [1.0, 2.0]]


def test_badly_conditioned_systems_are_solved_in_float64() -> None:
    matrix = np.repeat(some_matrix(60, 20), 200, axis=0)

    assert ease.inverse_of(torch.from_numpy(matrix.T @ matrix), 500.0).dtype == torch.float32
    assert ease.inverse_of(torch.from_numpy(matrix.T @ matrix), 0.5).dtype == torch.float64
    np.testing.assert_allclose(
        scores_after("ease", matrix[:60], regularization=1e-4),
        matrix[:60] @ weights_by_the_formula(matrix[:60], 1e-4), atol=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("penalty", [(), ("0.01",)], ids=["penalty searched", "badly conditioned"])
@pytest.mark.parametrize(("memory_mib", "least", "most"), [(281, 187, 1.2 * 281), (150, 10, 1.3 * 150)])
def test_the_memory_budget_bounds_the_growth_of_the_process(
    penalty: tuple[str, ...], memory_mib: int, least: float, most: float
) -> None:
    """281 MiB hold all weights of 7,000 items, 187 MiB alone; the growth includes the rows and the checkpoint."""
    command = [sys.executable, "-m", "tests.unit.models.ease_memory", str(memory_mib), *penalty]
    # Without them glibc keeps freed blocks of many sizes: 160 MiB held are then 200 to 390 of the process, by chance.
    allocator = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000"}
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | allocator
    found = subprocess.run(command, capture_output=True, check=True, text=True, env=environment, timeout=600)

    num_items, growth = (float(number) for number in found.stdout.split())
    assert num_items == 7_000
    assert least < growth < most
