"""What is done to batches before a model sees them: lists cut, weighted and made rectangles."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.batch import Batch, Ragged

Lists = list[list[int]]


def ragged(lists: Lists, *, weights: bool = False) -> Ragged:
    values = torch.tensor([value for row in lists for value in row], dtype=torch.int32)
    offsets = torch.tensor([0, *torch.tensor([len(row) for row in lists]).cumsum(0).tolist()])
    return Ragged(values, offsets, values / 2 if weights else None)


def padded_slowly(lists: Lists, length: int, keep: str) -> tuple[Lists, list[list[bool]]]:
    kept = [row[max(len(row) - length, 0) :] if keep == "last" else row[:length] for row in lists]
    there = [[place < len(row) for place in range(length)] for row in kept]
    return [row + [0] * (length - len(row)) for row in kept], there


@pytest.mark.parametrize("keep", ["last", "first"])
@pytest.mark.parametrize(
    "lists",
    [[[1, 2, 3, 4, 5], [6], [7, 8, 9]], [[], [1, 2, 3, 4], []], [[], [], []], [[1]], [[], [], [4, 5, 6]]],
    ids=["long and short", "first and last empty", "all empty", "one", "only the last"],
)
@pytest.mark.parametrize("length", [1, 3, 10])
def test_padded_keeps_the_end_that_is_asked_for(lists: Lists, length: int, keep: Literal["last", "first"]) -> None:
    values, there = ragged(lists).padded(length, keep=keep)
    assert (values.tolist(), there.tolist()) == padded_slowly(lists, length, keep)
    assert (values.dtype, there.dtype, tuple(values.shape)) == (torch.int32, torch.bool, (len(lists), length))


@given(st.lists(st.lists(st.integers(1, 9), max_size=5), min_size=1, max_size=6), st.integers(1, 6))
def test_padded_is_what_a_loop_over_rows_makes(lists: Lists, length: int) -> None:
    values, there = ragged(lists).padded(length)
    assert (values.tolist(), there.tolist()) == padded_slowly(lists, length, "last")


def test_padded_takes_numbers_and_no_rows() -> None:
    values, there = Ragged(torch.tensor([0.5, 1.5]), torch.tensor([0, 2, 2])).padded(3)
    assert values.tolist() == [[0.5, 1.5, 0.0], [0.0, 0.0, 0.0]]
    assert there.sum().item() == 2
    assert ragged([]).padded(3)[0].shape == (0, 3)


@pytest.mark.parametrize("weights", [False, True])
def test_parts_of_a_batch_hold_its_rows_in_order(weights: bool) -> None:
    lists = [[1, 2], [], [3], [4, 5, 6], []]
    weight = torch.arange(5.0) if weights else None
    batch = Batch({"tags": ragged(lists, weights=weights), "age": torch.arange(5.0)}, {"label": torch.ones(5)}, weight)
    parts = list(batch.parts(2))
    assert [part.num_rows for part in parts] == [2, 3]
    found = []
    for part in parts:
        tags = part.features["tags"]
        assert isinstance(tags, Ragged)
        for first, last in pairwise(tags.offsets.tolist()):
            one = None if tags.weights is None else tags.weights[first:last].tolist()
            found.append((tags.values[first:last].tolist(), one))
    assert found == [(row, [value / 2 for value in row] if weights else None) for row in lists]
    if weights:
        assert torch.cat([part.weight for part in parts if part.weight is not None]).tolist() == [0, 1, 2, 3, 4]


def test_a_batch_moves_with_all_that_it_holds() -> None:
    batch = Batch(
        {"tags": ragged([[1], [2, 3]], weights=True), "age": torch.ones(2)}, {"a": torch.ones(2)}, torch.ones(2)
    )
    moved = batch.to("meta")
    assert len(list(batch.tensors())) == 6
    assert {tensor.device.type for tensor in moved.tensors()} == {"meta"}
    assert len(list(moved.tensors())) == 6


def test_columns_that_are_not_finite_are_named_except_for_the_missing_numbers_of_filled_ones() -> None:
    numbers = {"age": torch.tensor([1, torch.nan]), "year": torch.tensor([torch.nan, 2]), "size": torch.ones(2)}
    assert Batch(numbers, {}).not_finite() == ["age", "year"]
    assert Batch(numbers, {}).not_finite(["year", "size"]) == ["age"]
    assert Batch(numbers | {"size": torch.tensor([1, torch.inf])}, {}).not_finite(["year", "size"]) == ["age", "size"]
