"""Filter, Dropna and TimeWindow, and common properties of all filters."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from pydantic import ValidationError

from recsys_cli.errors import DataError
from recsys_cli.events import Message
from recsys_cli.ops import (
    AddTags,
    Clip,
    Deduplicate,
    Dropna,
    FillMissing,
    Filter,
    Groupby,
    HashBucket,
    KCore,
    LambdaOp,
    Rename,
    TimeWindow,
)
from tests.rows import NAN, compiled, send, tables

TABLE = pa.table({
    "user": ["a", "b", None, "a", "c"],
    "rating": [4.0, 3.5, 5.0, None, NAN],
    "tags": pa.array([["x"], [], None, [None], ["y"]]),
    "time": [10, 20, 30, None, 50],
})  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("rating >= 4", [0, 2]),
        ("rating < 4", [1]),
        ("rating - 4", [1, 2]),  # a number is true unless it is 0
        ("not rating >= 4", [1]),
        ("user == 'a'", [0, 3]),
        ("user == 'a' or rating > 4", [0, 2, 3]),  # true or null is true
        ("1", [0, 1, 2, 3, 4]),
        ("0.5", [0, 1, 2, 3, 4]),
        ("1 / 0 > 1", [0, 1, 2, 3, 4]),
        ("0 / 0", []),
        ("time > 10 and time < 50", [1, 2]),
    ],
)
def test_filter_keeps_the_rows_for_which_the_expression_is_true(expression: str, kept: list[int]) -> None:
    assert send(TABLE, Filter(expression=expression)).numbers == kept


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        ("user", [0, 1, 3, 4]),
        ("rating", [0, 1, 2]),
        ("tags", [0, 1, 3, 4]),
        (("user", "time"), [0, 1, 4]),
        ((), [0, 1]),
    ],
)
def test_dropna_keeps_the_rows_that_have_a_value(columns: Any, kept: list[int]) -> None:
    assert send(TABLE, Dropna(columns=columns)).numbers == kept


def test_dropna_without_columns_uses_all_read_or_computed_columns() -> None:
    made = LambdaOp(expression="time / (time > 10)", output="late", dtype="float64")
    assert send(TABLE, made, Filter(expression="1"), Dropna(), want=["time"]).numbers == [0, 1, 2, 4]
    half = LambdaOp(expression="rating", output="half", dtype="float64")
    assert send(TABLE, half, Dropna(), want=["time"]).numbers == [0, 1, 2]


def test_dropna_of_a_column_without_values_keeps_nothing() -> None:
    table = pa.table({"user": pa.nulls(3), "item": [1, 2, 3]})
    assert send(table, Dropna(columns="user")).numbers == []


@pytest.mark.parametrize(
    ("window", "kept"),
    [
        ({"after": 20}, [1, 2, 4]),
        ({"before": 30}, [0, 1]),
        ({"after": 10, "before": 30}, [0, 1]),
        ({"after": 10.5}, [1, 2, 4]),
        ({"before": 20.5}, [0, 1]),
        ({"last": "20s"}, [4]),  # 30 is older by exactly that much
        ({"last": "21s"}, [2, 4]),
        ({"before": 50, "last": "11s"}, [1, 2]),
        ({"after": "1970-01-01T00:00:20", "before": "1970-01-01T01:00:30+01:00"}, [1]),
        ({"after": datetime.date(1970, 1, 1)}, [0, 1, 2, 4]),
        ({"after": 1e30}, []),
        ({"before": 2**70}, [0, 1, 2, 4]),
    ],
)
@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.int8(), pa.uint64(), pa.float32(), pa.timestamp("ms"), pa.timestamp("ns", "UTC")]
)
def test_time_window_keeps_the_rows_inside(window: dict[str, Any], kept: list[int], kind: pa.DataType) -> None:
    times = pa.array(TABLE["time"].to_pylist(), pa.int64())
    if pa.types.is_timestamp(kind):
        times = pa.array(
            [None if time is None else time * {"ms": 10**3, "ns": 10**9}[kind.unit] for time in times.to_pylist()]
        )
    table = TABLE.set_column(3, "time", times.cast(kind))
    assert send(table, TimeWindow(column="time", **window)).numbers == kept


def test_time_window_of_dates() -> None:
    days = pa.table({"day": pa.array([datetime.date(2020, 1, day) for day in (1, 2, 3, 4)])})
    for kind in (pa.date32(), pa.date64()):
        table = days.cast(pa.schema([("day", kind)]))
        assert send(table, TimeWindow(column="day", after="2020-01-02")).numbers == [1, 2, 3]
        assert send(
            table, TimeWindow(column="day", after="2020-01-01T12:00", before="2020-01-03T00:00:01")
        ).numbers == [1, 2]
        assert send(table, TimeWindow(column="day", last="2d")).numbers == [2, 3]


def test_time_window_without_any_time_keeps_nothing() -> None:
    table = pa.table({"time": pa.array([None, None], pa.int64())})
    assert send(table, TimeWindow(column="time", last="1d")).numbers == []
    assert send(table.slice(0, 0), TimeWindow(column="time", last="1d")).numbers == []
    inf = pa.table({"time": [float("inf"), 100.0, NAN, 5.0]})
    assert send(inf, TimeWindow(column="time", last="50s")).numbers == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set after, before or last"),
        ({"after": "yesterday"}, "'yesterday' is no time"),
        ({"last": "3 months"}, "'3 months' is no duration"),
        ({"after": "2020-01-02", "before": "2020-01-02"}, "the window is empty: after 2020-01-02"),
    ],
)
def test_time_window_refuses_invalid_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TimeWindow(column="time", **options)


def test_filter_refuses_an_invalid_expression() -> None:
    with pytest.raises(ValidationError, match="cannot read the expression"):
        Filter(expression="rating >")


def test_no_filters_return_the_source() -> None:
    sent = send(TABLE)
    assert sent.chosen.rows is sent.source
    assert sent.table.column_names == TABLE.column_names
    assert sent.counts == []


def test_input_is_parsed_once_for_several_ops_over_all_rows() -> None:
    ops = (
        Filter(expression="time > 0"),
        Deduplicate(columns="user"),
        KCore(columns={"user": 1}),
        TimeWindow(column="time", last="1w"),
    )
    sent = send(TABLE, *ops)
    assert sent.source.passes == 1
    assert sent.numbers == [0, 1, 4]
    assert sent.counts == [("Filter", 5, 4), ("Deduplicate", 4, 4), ("KCore", 4, 3), ("TimeWindow", 3, 3)]
    assert sent.chosen.estimated_rows(99) == 3


def test_dead_columns_are_dropped() -> None:
    sent = send(TABLE, Filter(expression="rating >= 4"), Deduplicate(columns="user"), want=["time"])
    assert sent.table.column_names == ["time", "\x01number"]


def test_counts_are_reported() -> None:
    sent = send(TABLE, Filter(expression="rating >= 4"), Dropna(columns="user"))
    told: list[Any] = []
    sent.chosen.report(told.append)
    assert told == [
        Message("Filter 'rating >= 4': 5 rows in, 2 rows out"), Message("Dropna: 2 rows in, 1 rows out"),
    ]  # fmt: skip


def test_op_that_removes_all_rows_is_an_error() -> None:
    sent = send(TABLE, Filter(expression="time > 0"), Filter(expression="rating > 5"), Dropna())
    with pytest.raises(DataError, match=r"Filter 'rating > 5' removes all 4 rows"):
        sent.chosen.check()


def test_new_rows_skip_filters_but_not_computed_columns() -> None:
    late = LambdaOp(expression="time > 10", output="late", dtype="int8")
    sent = send(TABLE, late, Filter(expression="late"), KCore(columns={"user": 9}), want=["late"], part="new")
    assert sent.column("late") == [0, 1, 1, 0, 1]


def test_column_ops_between_filters_compute_as_after_the_split() -> None:
    ops = (
        Rename(columns={"user": "who"}),
        AddTags(columns="who", tags="person"),
        FillMissing(columns="rating", fill_val=1, add_binary_cols=True),
        Clip(columns="rating", max_value=4),
        HashBucket(columns="who", num_buckets=7),
        Filter(expression="rating < 4 or rating_filled > 0"),
        Groupby(by="who", aggs={"rating": "list"}),
    )
    want = ["who", "rating_list"]
    program = compiled(TABLE, ops, want)
    spec = next(spec for name, spec, _ in program.columns if name == "who")
    sent = send(TABLE, *ops, want=want)
    assert sent.column("rating_list") == [[3.5], [1.0], [1.0]]
    assert sent.table.schema.field("who").type == spec.type == pa.int32()
    assert (spec.categorical, spec.cardinality, spec.tags) == (True, 10, ("person",))
    assert len(set(sent.column("who"))) == 3


def test_k_core_skips_held_out_rows_of_a_files_split() -> None:
    ops = (Filter(expression="rating >= 4"), KCore(columns={"user": 2}))
    assert send(TABLE, *ops, part="held-out").numbers == [0, 2]
    assert send(TABLE, *ops).numbers == []


def test_types_of_the_first_file_hold_and_dictionaries_are_decoded() -> None:
    table = pa.table({"user": pa.array(["a", "b", "a"]).dictionary_encode(), "item": pa.array([1, 2, 3], pa.int8())})
    sent = send(table, Deduplicate(columns="user", keep="last"), size=1)
    assert sent.column("user") == ["b", "a"]
    assert sent.table.schema.field("user").type == pa.string()


@settings(max_examples=20, derandomize=True)
@given(tables())
def test_rows_out_are_rows_in(table: pa.Table) -> None:
    for op in (
        Filter(expression="0 < 1"),
        Dropna(columns="user"),
        Deduplicate(columns="user"),
        KCore(columns={"user": 2}),
    ):
        sent = send(table, op)
        kept = table.take(pa.array(sent.numbers, pa.int64()))
        assert repr(sent.table.drop_columns(["\x01number"]).to_pydict()) == repr(kept.to_pydict())
