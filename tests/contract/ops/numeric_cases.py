"""Data for tests of ops on numbers: interactions of which only the numbers matter, and how answers are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from recsys_cli.ops import Categorify, JoinExternal
from recsys_cli.ops.op import Op
from tests.engines import Answer, plan
from tests.strategies import Case


def numbers_case(
    train: Mapping[str, Any],
    *ops: Op,
    valid: Mapping[str, Any] | None = None,
    items: Mapping[str, Any] | None = None,
    also: Mapping[str, Any] | None = None,
) -> Case:
    """Return interactions that have these columns, and a plan of these ops.

    Args:
        train: Columns of train; `item` among them where a table is joined.
        ops: What is done with them.
        valid: Columns of valid.
        items: Columns by `item`, which are joined.
        also: Further settings of the plan, such as `drop`.
    """
    splits = {
        split: _interactions(columns)
        for split, columns in {"train": train, "valid": valid}.items()
        if columns is not None
    }
    tables = {} if items is None else {"items": pa.table(dict(items))}
    joins = (
        [JoinExternal(table="items", on="item", columns=tuple(name for name in items if name != "item"))]
        if items
        else []
    )
    made = plan(*joins, Categorify(columns=("user", "item")), *ops, timestamp="at")
    return Case(splits, tables, made.model_copy(update=dict(also or {})))


def _interactions(columns: Mapping[str, Any]) -> pa.Table:
    rows = len(next(iter(columns.values())))
    named = {"user": pa.array([1] * rows, pa.int64()), "item": pa.array([1] * rows, pa.int64())}
    return pa.table(
        {**named, "rating": pa.array([1.0] * rows, pa.float64()), "at": pa.array(range(rows), pa.int64()), **columns}
    )


def in_order(found: Answer, name: str, split: str = "train", *, layout: str = "star") -> list[Any]:
    """Return a prepared column in the order in which the case has the rows; train is shuffled."""
    rows = zip(found.column("at", split, layout=layout), found.column(name, split, layout=layout), strict=True)
    return [value for _, value in sorted(rows, key=lambda row: int(row[0]))]


def assert_same(found: list[Any], expected: list[Any], *, what: str = "") -> None:
    """Compare numbers, or lists of them, as engines have to agree: NaN is NaN, others within a millionth."""
    assert len(found) == len(expected), (what, found, expected)
    for mine, theirs in zip(found, expected, strict=True):
        if isinstance(theirs, list):
            assert_same(mine, theirs, what=what)
        else:
            assert mine == pytest.approx(theirs, rel=1e-6, abs=1e-9, nan_ok=True), (what, found, expected)
