"""DifferenceLag: differences within groups spread over all batches and buckets."""

from __future__ import annotations

import datetime
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
from recsys_cli.ops import DifferenceLag, Filter
from tests.rows import NAN, close, in_order, plain_rows, send, tables

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


def reference(table: pa.Table, by: Sequence[str], order_by: Sequence[str], shift: int) -> list[float | None]:
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
    assert close(sent.column(name), reference(table, by, order_by, shift))
    assert repr(sent.column("value")) == repr(table["value"].to_pylist())


def test_nan_is_null() -> None:
    table = pa.table({"user": [1.0, -0.0, NAN, 0.0, NAN], "value": [1.0, NAN, 2.0, 3.0, 4.0]})
    sent = send(table, DifferenceLag(columns="value", by="user"), want=["value_difference_lag_1"])
    assert sent.column("value_difference_lag_1") == [None] * 5
