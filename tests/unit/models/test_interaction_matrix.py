"""The interaction matrix, on a small example."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recsys_cli.features.schema import FIRST, Role
from recsys_cli.interactions import Interactions
from recsys_cli.models.interaction_matrix import InteractionMatrix, spans
from recsys_cli.models.item_to_item import gram
from tests.unit.models.matrix_fixtures import rows_of_matrix, schema_of, some_matrix

MATRIX = np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]])
USER, ITEM = (schema_of(MATRIX).only(role) for role in (Role.USER, Role.ITEM))
CPU = torch.device("cpu")


def history(rows: Interactions, positive_only: bool = False) -> InteractionMatrix:
    return InteractionMatrix.of(rows, USER, ITEM, positive_only=positive_only, device=CPU)


def test_of_users_allows_any_order_and_duplicates() -> None:
    lists = history(rows_of_matrix(MATRIX)).of_users(torch.tensor([5, 4, 3, 5, 0]))

    assert lists.offsets.tolist() == [0, 3, 3, 5, 8, 8]
    assert lists.values.tolist() == [3, 4, 6, 3, 5, 3, 4, 6]


def test_repeated_interactions_count_once_and_shared_ids_are_excluded() -> None:
    rows = Interactions(
        np.array([5, 5, 2, 5], np.int32), np.array([4, 4, 4, 1], np.int32), np.array([0, 1, 1, 1], np.float32)
    )

    assert history(rows).items.tolist() == [4]
    assert history(rows).counts.tolist() == [0, 0, 0, 0, 1, 0, 0]


def test_positive_only_ignores_label_0() -> None:
    rows = rows_of_matrix(MATRIX)
    liked = Interactions(rows.user_idx, rows.item_idx, np.array([1, 0, 0, 0, 1], np.float32))

    assert history(liked, positive_only=True).of_users(torch.tensor([3, 5])).values.tolist() == [3, 6]


def test_renumbered_drops_items_with_negative_indices() -> None:
    names = torch.full((7,), -1)
    names[torch.tensor([6, 3])] = torch.tensor([0, 1])

    renamed = history(rows_of_matrix(MATRIX)).renumbered(names, num_items=2)

    assert renamed.dense(FIRST, FIRST + 3).tolist() == [[0, 1], [0, 0], [1, 1]]


@pytest.mark.parametrize("block", [1, 20, 1 << 20])
def test_gram_is_the_product_of_the_matrix_with_itself(block: int) -> None:
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
