"""Counts of values, and encoders of their vocabularies."""

from __future__ import annotations

import datetime
import gc
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_cli.errors import DataError
from recsys_cli.features.hashing import below, hash_counters, hash_values
from recsys_cli.ops import vocabulary as module
from recsys_cli.ops.vocabulary import Encoder, Index, add_up, count, encoder_of, in_order, unpacked

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


DAY = datetime.date(2020, 1, 1)


def table_of(values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"value": pa.array(values, kind), "count": pa.array([1] * len(values), pa.int64())})


@pytest.mark.parametrize(
    ("kind", "known", "others"),
    [
        (pa.int8(), [3, -128, 127], [0, 4]),
        (pa.int64(), [3, 4, 9], [2, 5, 10, -(2**63), 2**63 - 1]),
        (pa.int64(), [2**62, -(2**63), 0], [1, 2**62 + 1]),
        (pa.uint64(), [7, 8], [0, 2**64 - 1, 2**63]),
        (pa.uint64(), [2**64 - 1, 0], [2**63, 1]),
        (pa.float32(), [0.5, 0.0, 3.0], [0.25, float("inf")]),
        (pa.bool_(), [True], [False]),
        (pa.date32(), [DAY], [DAY.replace(day=2)]),
        (pa.timestamp("us"), [datetime.datetime(2020, 1, 1)], [datetime.datetime(2020, 1, 1, 1)]),
        (pa.string(), ["a", "", "12345678"], ["b", "a\0", "123456789", "12345678" * 3]),
        (pa.string(), ["a long text, of which there are others", "a"], ["a long text, of which", "b", "a\0"]),
        (pa.binary(), [b"\xff\xfe", b""], [b"\xff"]),
        (pa.decimal128(5, 2), [Decimal("1.20"), Decimal("-3.00")], [Decimal("1.21")]),
    ],
)
def test_ids_are_those_of_the_vocabulary(kind: pa.DataType, known: list[Any], others: list[Any]) -> None:
    encode = Encoder(table_of(known, kind))
    values = [None, *others, *known, None, *known]
    expected = [1, *[2] * len(others), *range(3, 3 + len(known)), 1, *range(3, 3 + len(known))]

    assert encode(pa.array(values, kind)).tolist() == expected
    assert (
        encode(pa.array(["x", *values], kind).slice(1) if kind == pa.string() else pa.array(values, kind)).dtype
        == np.int32
    )
    assert encode(pa.array([], kind)).tolist() == []
    if kind not in {pa.decimal128(5, 2), pa.binary()}:
        assert encode(pa.array(values, kind).dictionary_encode()).tolist() == expected


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64(), pa.null()])
def test_an_empty_vocabulary(kind: pa.DataType) -> None:
    encode = Encoder(table_of([], kind))

    assert encode(pa.array(["a", None])).tolist() == [2, 1]
    assert encode(pa.array([5, None]), num_buckets=1).tolist() == [3, 1]
    assert encode(pa.nulls(2)).tolist() == [1, 1]


def test_nan_is_null_and_zero_has_no_sign() -> None:
    encode = Encoder(table_of([0.0, 2.0]))

    assert encode(pa.array([-0.0, 0.0, float("nan"), 2.0])).tolist() == [3, 3, 1, 4]


def test_integers_of_any_width_are_equal() -> None:
    for known in ([1, 2], [1, 2**40]):
        encode = Encoder(table_of(known, pa.int64()))
        for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64()):
            assert encode(pa.array([1, 3, None], kind)).tolist() == [3, 2, 1]


def test_unseen_values_go_to_their_bucket() -> None:
    for known, unseen in ((["a", "b"], ["c", "a text that is long"]), ([1, 2], [3, -(2**62)])):
        found = Encoder(table_of(known))(pa.array([*unseen, None, known[1]]), num_buckets=100)
        assert found.tolist() == [*(5 + below(hash_values(pa.array(unseen)), 100)).tolist(), 1, 4]


def test_values_of_another_kind_are_refused() -> None:
    with pytest.raises(DataError, match="type int64, but the column has type string"):
        Encoder(table_of([1, 2]))(pa.array(["1"]))
    with pytest.raises(DataError, match="type string, but the column has type double"):
        Encoder(table_of(["a"]))(pa.array([1.0]))


def test_hash_collisions_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module, "hash_values", lambda values: np.array([len(v or "") for v in values.to_pylist()], np.uint64)
    )
    encode = Encoder(table_of(["a text of some length"]))

    assert encode(pa.array(["a text of some lengtH", "a text of some length", None])).tolist() == [2, 3, 1]

    both = Encoder(table_of(["a text of some length", "a text of some lengtH"]))
    assert both(pa.array(["a text of some lengtH", "a text of any length,", None, "b"])).tolist() == [4, 2, 1, 2]


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=50), st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_index_finds_all_and_nothing_else(known: list[int], others: list[int]) -> None:
    index = Index(np.array(known, dtype=np.uint64))
    places = {hashed: place for place, hashed in enumerate(known, 3)}

    asked = [*known, *others, 0, 2**64 - 1]

    assert index.find(np.array(asked, dtype=np.uint64)).tolist() == [places.get(hashed, 2) for hashed in asked]


def test_index_of_many() -> None:
    hashes = hash_counters(np.arange(100_000, dtype=np.uint64), 1)

    index = Index(hashes[:50_000])

    assert np.array_equal(index.find(hashes), np.concatenate([np.arange(3, 50_003), np.full(50_000, 2)]))


def test_encoder_is_built_once_and_goes_with_its_vocabulary() -> None:
    gc.collect()
    before = len(module._encoders)
    table = table_of(["a", "b"])

    assert encoder_of(table) is encoder_of(table)
    assert encoder_of(table) is not encoder_of(table_of(["a", "b"]))

    del table
    gc.collect()
    assert len(module._encoders) == before
