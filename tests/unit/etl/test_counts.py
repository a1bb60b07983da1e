"""Value counts equal those of `collections.Counter`: values of any type, partial counts, and order."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.etl.counts import add_up, count, in_order, unpacked

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.sampled_from([0, 1, 2, 3, -(2**63), 2**63 - 1]),
    pa.uint64(): st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    pa.string(): st.text(max_size=3),
    pa.large_string(): st.sampled_from(["", "é", "ab", "12345678", "123456789", "a\0", "a"]),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(datetime.date(2020, 1, 1), datetime.date(2020, 1, 5)),
    pa.float64(): st.sampled_from([0.5, 1.0, -2.0, float("inf")]),
}
SOME = st.sampled_from(list(VALUES)).flatmap(
    lambda kind: st.lists(st.lists(VALUES[kind] | st.none(), max_size=9), min_size=1, max_size=4).map(
        lambda p: (kind, p)
    )
)


def as_counter(table: pa.Table) -> Counter[Any]:
    table = unpacked(table)
    pairs = list(zip(table["value"].to_pylist(), table["count"].to_pylist(), strict=True))
    assert len({value for value, _ in pairs}) == len(pairs)
    assert table.schema.field("count").type == pa.int64()
    return Counter(dict(pairs))


@given(SOME)
def test_sum_of_partial_counts_equals_total_counts(drawn: tuple[pa.DataType, list[list[Any]]]) -> None:
    kind, parts = drawn

    tables = [count(pa.array(part, kind)) for part in parts]
    both = add_up([add_up(tables[:2]), *tables[2:]])

    assert as_counter(tables[0]) == Counter(parts[0])
    assert as_counter(both) == Counter(value for part in parts for value in part)


@given(SOME)
def test_order_is_by_count_then_value(drawn: tuple[pa.DataType, list[list[Any]]]) -> None:
    kind, parts = drawn
    values = [value for part in parts for value in part if value is not None]

    ordered = in_order(count(pa.array(values, kind)))

    found = list(zip(ordered["value"].to_pylist(), ordered["count"].to_pylist(), strict=True))
    by_bytes = lambda value: value.encode() if isinstance(value, str) else value  # noqa: E731
    assert found == sorted(Counter(values).items(), key=lambda pair: (-pair[1], by_bytes(pair[0])))


@pytest.mark.parametrize("values", [["a", "b", "a"], [2**40, 5, 2**40], [1, 2, 1]])
def test_counts_of_different_types_are_added_up(values: list[Any]) -> None:
    one = count(pa.array(values))
    other = {str: pa.large_string(), int: pa.uint64()}[type(values[0])]
    also = pa.table({"value": unpacked(one)["value"].cast(other), "count": one["count"]})

    assert as_counter(add_up([one, also] if isinstance(values[0], str) else [one, one])) == Counter(values * 2)


def test_unsorted_counts_are_added_up() -> None:
    parts = [pa.table({"value": [3, None, 1, 2], "count": [1, 2, 3, 4]}), pa.table({"value": [2, 0], "count": [5, 6]})]

    assert as_counter(add_up(parts)) == {3: 1, None: 2, 1: 3, 2: 9, 0: 6}


@pytest.mark.parametrize("different", [3, 300, 20_000, 400_000])
def test_counts_of_few_and_many_distinct_integers(different: int) -> None:
    rng = np.random.default_rng(different)
    known = rng.integers(-(2**63), 2**63, different)
    numbers = known[rng.integers(0, different, 200_000)]

    counts = count(pa.array(numbers))

    expected, times = np.unique(numbers, return_counts=True)
    assert counts["value"].to_pylist() == expected.tolist()
    assert counts["count"].to_pylist() == times.tolist()


def test_long_string_in_one_part_changes_nothing() -> None:
    parts = [["a", None, "b"], ["a", "a text that is long"], [None, "b\0", "b"]]

    tables = [count(pa.array(part)) for part in parts]

    assert as_counter(add_up(tables)) == Counter(value for part in parts for value in part)
