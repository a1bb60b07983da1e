"""Deduplicate: ties, equal nulls, and duplicates at any distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.ops import Deduplicate
from tests.rows import NAN, ORDERED, in_order, plain_rows, send, tables

TABLE = pa.table({
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
    sent = send(TABLE, Deduplicate(columns=("user", "item"), **options))
    assert sent.numbers == kept
    assert sent.column("time") == [TABLE["time"][row].as_py() for row in kept]


def test_nan_is_null_and_zero_has_no_sign() -> None:
    table = pa.table({"user": [0.0, NAN, -0.0, None, 1.0]})
    assert send(table, Deduplicate(columns="user")).numbers == [0, 1, 4]


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=[str(kind) for kind, _ in ORDERED])
def test_keys_of_all_types(kind: pa.DataType, values: list[Any]) -> None:
    table = pa.table({"user": pa.array([*values, None, *values, None], kind), "item": pa.nulls(2 * len(values) + 2)})
    assert send(table, Deduplicate(columns=("user", "item")), size=1).numbers == [*range(len(values) + 1)]
    assert send(table, Deduplicate(columns="item"), size=1).numbers == [0]


def test_nothing_stays_nothing() -> None:
    assert send(TABLE.slice(0, 0), Deduplicate(columns="user")).numbers == []
    assert send(TABLE.slice(0, 1), Deduplicate(columns="user", keep="none")).numbers == [0]


def reference(table: pa.Table, columns: Sequence[str], keep: str, order_by: Sequence[str]) -> list[int]:
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
    assert sent.numbers == reference(table, columns, keep, order_by)
