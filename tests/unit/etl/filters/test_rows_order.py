"""Integer codes preserve the order of values of any type."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from recsys_cli.ops.buckets import group
from tests.rows import NAN, ORDERED


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=[str(kind) for kind, _ in ORDERED])
@pytest.mark.parametrize("nulls", [0, 2])
def test_values_of_all_types_are_ordered_and_nulls_come_last(kind: pa.DataType, values: list[Any], nulls: int) -> None:
    ordered = pa.array(values + [None] * nulls, kind)
    places = [*range(len(ordered))][::-1]
    table = pa.table({"value": ordered.take(pa.array(places)), "one": [1] * len(places)})
    found = group(table, ["one"], ["value"])
    assert table["value"].take(pa.array(found.order)).combine_chunks().equals(ordered)
    assert found.starts.tolist() == [0]
    by_value = group(table, ["value"], [])
    assert len(by_value.starts) == len(values) + (nulls > 0)


def test_ties_stay_in_their_order() -> None:
    table = pa.table({"user": [2, 1, 2, 1, 2, None], "time": [0.0, NAN, -0.0, None, -1.0, 3.0]})
    found = group(table, ["user"], ["time"])
    assert found.order.tolist() == [1, 3, 4, 0, 2, 5]
    assert (found.starts.tolist(), found.ends.tolist()) == ([0, 2, 5], [2, 5, 6])
    assert found.numbers.tolist() == [0, 0, 1, 1, 1, 2]


def test_numbers_that_fill_64_bits_leave_room_for_null() -> None:
    table = pa.table({"user": pa.array([None, 2**64 - 1, 0, None, 5], pa.uint64())})
    assert group(table, ["user"], []).order.tolist() == [2, 4, 1, 0, 3]


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows: int) -> None:
    found = group(pa.table({"user": pa.array([7] * rows, pa.int64())}), ["user"], ["user"])
    assert found.order.tolist() == found.starts.tolist() == [0] * rows
    assert found.numbers.tolist() == [0] * rows
    assert len(group(pa.table({"user": pa.nulls(3)}), ["user"], []).starts) == 1
