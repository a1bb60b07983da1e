"""Deduplicate, KCore and DifferenceLag by hand and against naive loops, over batches and buckets."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recsys_cli.errors import ConfigError
from recsys_cli.events import Message
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.spec import Spec
from recsys_cli.ops import Deduplicate, DifferenceLag, Filter, KCore
from recsys_cli.ops.plan import FeaturePlan
from tests.rows import NAN, ORDERED, close, in_order, plain_rows, send, tables

DUPLICATES = pa.table({
    "user": [1, 2, 1, 1, None, 2, None],
    "item": [5, 5, 5, 6, 5, 5, 5],
    "time": [30, 20, 10, 40, 5, 20, None],
})  # fmt: skip


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, [0, 1, 3, 4]),
        ({"keep": "last"}, [2, 3, 5, 6]),
        ({"keep": "none"}, [3]),
        ({"order_by": "time"}, [1, 2, 3, 4]),  # user 2 has one time twice: the first row wins
        ({"order_by": "time", "keep": "last"}, [0, 3, 5, 6]),  # a null comes last
        ({"order_by": ("time", "item"), "keep": "none"}, [3]),
    ],
)
def test_deduplicate_keeps_one_of_each(options: dict[str, Any], kept: list[int]) -> None:
    sent = send(DUPLICATES, Deduplicate(columns=("user", "item"), **options))
    assert sent.numbers == kept
    assert sent.column("time") == [DUPLICATES["time"][row].as_py() for row in kept]


def test_keys_of_nan_are_null_and_zero_has_no_sign() -> None:
    table = pa.table({"user": [0.0, NAN, -0.0, None, 1.0]})
    assert send(table, Deduplicate(columns="user")).numbers == [0, 1, 4]


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=[str(kind) for kind, _ in ORDERED])
def test_keys_of_all_types(kind: pa.DataType, values: list[Any]) -> None:
    table = pa.table({"user": pa.array([*values, None, *values, None], kind), "item": pa.nulls(2 * len(values) + 2)})
    assert send(table, Deduplicate(columns=("user", "item")), size=1).numbers == [*range(len(values) + 1)]
    assert send(table, Deduplicate(columns="item"), size=1).numbers == [0]


def test_no_rows_stay_no_rows() -> None:
    assert send(DUPLICATES.slice(0, 0), Deduplicate(columns="user")).numbers == []
    assert send(DUPLICATES.slice(0, 1), Deduplicate(columns="user", keep="none")).numbers == [0]


def kept_by_a_loop(table: pa.Table, columns: Sequence[str], keep: str, order_by: Sequence[str]) -> list[int]:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in in_order(plain_rows(table), order_by):
        groups.setdefault(tuple(row[name] for name in columns), []).append(row[ROW_NUMBER])
    if keep == "none":
        return sorted(rows[0] for rows in groups.values() if len(rows) == 1)
    return sorted(rows[0 if keep == "first" else -1] for rows in groups.values())


@settings(max_examples=60, derandomize=True)
@given(
    tables(),
    st.sampled_from([("user",), ("user", "item"), ("time", "item")]),
    st.sampled_from(["first", "last", "none"]),
    st.sampled_from([(), ("time",), ("value", "time")]),
    st.integers(1, 5),
)
def test_deduplicate_equals_a_naive_loop(
    table: pa.Table, columns: tuple[str, ...], keep: Any, order_by: tuple[str, ...], size: int
) -> None:
    sent = send(table, Deduplicate(columns=columns, keep=keep, order_by=order_by), size=size)
    assert sent.numbers == kept_by_a_loop(table, columns, keep, order_by)


# A chain: without the item at one end, the adjacent user is rare, then the next item, and so on to the middle.
CHAIN = pa.table({"user": [1, 1, 2, 2, 3, 3, 4, 4], "item": [0, 1, 1, 2, 2, 3, 3, 4]})


def test_rounds_continue_to_the_fixpoint() -> None:
    sent = send(CHAIN, KCore(columns={"user": 2, "item": 2}))
    assert sent.numbers == []
    assert sent.events == [Message("KCore user ≥ 2, item ≥ 2: converged after 4 rounds")]
    closed = pa.concat_tables([CHAIN, pa.table({"user": [4], "item": [0]})])
    assert send(closed, KCore(columns={"user": 2, "item": 2})).numbers == [0, 1, 2, 3, 4, 5, 6, 8]  # item 4 has one row


def test_a_block_with_a_fringe_is_the_block() -> None:
    block = [(user, item) for user in range(4) for item in range(3)]
    fringe = [(0, 10), (1, 10), (20, 0), (20, 1), (20, 10)]
    rows = fringe[:3] + block + fringe[3:]
    table = pa.table({"user": [f"u{user}" for user, _ in rows], "item": [item for _, item in rows]})
    assert send(table, KCore(columns={"user": 3, "item": 4})).numbers == list(range(3, 15))


def test_single_column_converges_in_one_round_and_drops_nulls() -> None:
    table = pa.table({"user": ["a", None, "a", None, "b"], "item": [1.0, 2.0, 3.0, 4.0, 5.0]})
    assert send(table, KCore(columns={"user": 2})).numbers == [0, 2]
    assert send(table, KCore(columns={"user": 1})).numbers == [0, 2, 4]
    assert send(table.slice(0, 0), KCore(columns={"user": 1})).numbers == []
    assert send(table.set_column(0, "user", pa.nulls(5)), KCore(columns={"user": 1})).numbers == []


def test_list_column_is_refused() -> None:
    table = pa.schema([("user", pa.list_(pa.int64())), ("item", pa.int64()), ("rating", pa.float64())])
    plan = FeaturePlan.model_validate({
        "user": "user", "item": "item", "label": "rating",
        "ops": [{"op": "KCore", "columns": {"user": 2}}, {"op": "Categorify", "columns": ["user", "item"]}],
    })  # fmt: skip
    with pytest.raises(ConfigError, match=r"KCore user ≥ 2: 'user' holds a list in each row"):
        plan.compile({"interactions": table})


def core_by_a_loop(table: pa.Table, least: dict[str, int]) -> list[int]:
    rows = [row for row in plain_rows(table) if all(row[name] is not None for name in least)]
    while True:
        counts = {name: Counter(row[name] for row in rows) for name in least}
        left = [row for row in rows if all(counts[name][row[name]] >= enough for name, enough in least.items())]
        if len(left) == len(rows):
            return [row[ROW_NUMBER] for row in rows]
        rows = left


@settings(max_examples=60, derandomize=True)
@given(
    tables(),
    st.dictionaries(st.sampled_from(["user", "item", "time"]), st.integers(1, 4), min_size=1),
    st.integers(1, 5),
)
def test_k_core_equals_a_naive_loop(table: pa.Table, least: dict[str, int], size: int) -> None:
    assert send(table, KCore(columns=least), size=size).numbers == core_by_a_loop(table, least)


TABLE = pa.table({
    "user": ["a", "b", "a", "a", None, "b", "a", None],
    "time": [30, 20, 10, 20, 5, 20, None, 6],
    "value": [1.0, 2.0, 4.0, None, 16.0, 32.0, 64.0, 128.0],
})  # fmt: skip


def test_differences_by_user_and_time() -> None:
    sent = send(
        TABLE,
        DifferenceLag(columns=("time", "value"), by="user", order_by="time", shift=(1, -1)),
        want=["user", "time_difference_lag_1", "value_difference_lag_1", "time_difference_lag_-1"],
    )
    assert sent.column("user") == TABLE["user"].to_pylist()
    assert sent.column("time_difference_lag_1") == [10.0, None, None, 10.0, None, 0.0, None, None]
    assert sent.column("value_difference_lag_1") == [None, None, None, None, None, 30.0, 63.0, None]
    assert sent.column("time_difference_lag_-1") == [None, 0.0, -10.0, -10.0, None, None, None, None]
    text = "DifferenceLag of time, value with shift -1 uses later rows: a leak"
    assert sent.events == [Message(text, "warning")]


def test_without_an_order_rows_follow_the_input() -> None:
    sent = send(TABLE, DifferenceLag(columns="value", by="user", shift=2), want=["value_difference_lag_2"])
    assert sent.column("value_difference_lag_2") == [None, None, None, None, None, None, 60.0, None]
    assert not sent.events


def test_filtered_rows_are_no_earlier_rows() -> None:
    ops = (Filter(expression="value != 4"), DifferenceLag(columns="time", by="user", order_by="time"))
    sent = send(TABLE, *ops, want=["time_difference_lag_1"])
    assert dict(zip(sent.numbers, sent.column("time_difference_lag_1"), strict=True))[0] is None


@pytest.mark.parametrize(
    ("values", "kind", "difference"),
    [
        ([2**53, 2**53 + 1], pa.int64(), 1.0),
        ([-(2**63), 2**63 - 1], pa.int64(), 2.0**64),
        ([2**64 - 1, 0], pa.uint64(), -(2.0**64)),
        ([2**64 - 2, 2**64 - 1], pa.uint64(), 1.0),
        ([100, -100], pa.int8(), -200.0),
        ([True, False], pa.bool_(), -1.0),
        ([0.1, 0.4], pa.float32(), 0.30000000447034836),
        ([datetime.date(2020, 2, 28), datetime.date(2020, 3, 1)], pa.date32(), 2 * 86400.0),
        ([datetime.date(2020, 2, 28), datetime.date(2020, 3, 1)], pa.date64(), 2 * 86400.0),
        ([1_500, 3_000], pa.timestamp("ms"), 1.5),
        ([1, 4], pa.timestamp("s", "UTC"), 3.0),
    ],
)
def test_all_types_of_values(values: list[Any], kind: pa.DataType, difference: float) -> None:
    table = pa.table({"user": [1, 1], "value": pa.array(values, kind)})
    sent = send(table, DifferenceLag(columns="value", by="user"), want=["value_difference_lag_1"])
    assert sent.column("value_difference_lag_1") == [None, difference]


def test_nothing_stays_nothing_and_one_row_has_no_earlier_one() -> None:
    op = DifferenceLag(columns="value", by="user")
    assert send(TABLE.slice(0, 0), op, want=["value_difference_lag_1"]).table.num_rows == 0
    assert send(TABLE.slice(0, 1), op, want=["value_difference_lag_1"]).column("value_difference_lag_1") == [None]


def test_invalid_columns_and_shifts_are_refused() -> None:
    op = DifferenceLag(columns="value", by="user")
    with pytest.raises(ConfigError, match="'value' holds string; numbers are needed"):
        op.outputs({"value": Spec(pa.string()), "user": Spec(pa.int64())})
    with pytest.raises(ConfigError, match="'user' holds a list in each row"):
        op.outputs({"value": Spec(pa.int64()), "user": Spec(pa.list_(pa.int64()))})
    with pytest.raises(ConfigError, match="is repeated"):
        DifferenceLag(columns=("value", "value"), by="user").outputs(
            {"value": Spec(pa.int64()), "user": Spec(pa.int64())}
        )
    with pytest.raises(ValidationError, match="a shift of 0 would subtract each row from itself"):
        DifferenceLag(columns="value", by="user", shift=0)


def differences_by_a_loop(
    table: pa.Table, by: Sequence[str], order_by: Sequence[str], shift: int
) -> list[float | None]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in in_order(plain_rows(table), order_by):
        if all(row[name] is not None for name in by):
            groups.setdefault(tuple(row[name] for name in by), []).append(row)
    found: list[float | None] = [None] * table.num_rows
    for rows in groups.values():
        for place, row in enumerate(rows):
            other = rows[place - shift]["value"] if 0 <= place - shift < len(rows) else None
            if other is not None and row["value"] is not None:
                found[row[ROW_NUMBER]] = float(row["value"] - other)
    return found


@settings(max_examples=60, derandomize=True)
@given(
    tables(),
    st.sampled_from([("user",), ("user", "item")]),
    st.sampled_from([(), ("time",), ("time", "item")]),
    st.sampled_from([1, 2, -1, -3]),
    st.integers(1, 5),
)
def test_difference_lag_equals_a_naive_loop(
    table: pa.Table, by: tuple[str, ...], order_by: tuple[str, ...], shift: int, size: int
) -> None:
    op = DifferenceLag(columns="value", by=by, order_by=order_by, shift=shift)
    name = f"value_difference_lag_{shift}"
    sent = send(table, op, want=["value", name], size=size)
    assert close(sent.column(name), differences_by_a_loop(table, by, order_by, shift))
    assert repr(sent.column("value")) == repr(table["value"].to_pylist())


def test_nan_is_null() -> None:
    table = pa.table({"user": [1.0, -0.0, NAN, 0.0, NAN], "value": [1.0, NAN, 2.0, 3.0, 4.0]})
    sent = send(table, DifferenceLag(columns="value", by="user"), want=["value_difference_lag_1"])
    assert sent.column("value_difference_lag_1") == [None] * 5
