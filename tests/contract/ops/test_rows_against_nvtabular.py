"""Ops that choose rows beside NVTabular's of the same name, where that is right: one partition, sorted where it asks for it.

They run before any engine, so they are not written twice; this is what shows that a user of NVTabular gets the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.ops import DifferenceLag, Dropna, Filter, Groupby
from recsys_cli.ops.groupby import Aggregation
from tests.engines import needs_all
from tests.rows import NAN, close, send

pytestmark = needs_all
COLUMNS = ["user", "item", "rating", "time"]


def drawn(seed: int, *, missing: bool = False) -> pa.Table:
    """Draw interactions whose times are all different, because NVTabular does not say how it orders equal ones."""
    rng = np.random.default_rng(seed)
    rows = 60
    rating = rng.integers(1, 6, rows).astype(float)
    if missing:
        rating[rng.random(rows) < 0.3] = NAN
    return pa.table({
        "user": rng.integers(0, 7, rows), "item": rng.integers(0, 9, rows), "rating": rating,
        "time": rng.permutation(rows) - 30,
    })  # fmt: skip


def nvtabular_of(table: pa.Table, graph: Callable[[Any], Any]) -> dict[str, list[Any]]:
    """Send a table through a workflow of NVTabular and return its columns."""
    from recsys_cli.ops.nvtabular import nvtabular, quiet, run, single_threaded

    with single_threaded(), quiet():
        made = run(graph(nvtabular().ops), dict(zip(table.column_names, table.itercolumns(), strict=True)))
    return {name: made.column(name).to_pylist() for name in made.column_names}


def ours(table: pa.Table, op: Any, names: list[str]) -> dict[str, list[Any]]:
    sent = send(table, op, want=names, size=7)
    return {name: sent.column(name) for name in names}


@pytest.mark.parametrize("seed", range(3))
def test_filter(seed: int) -> None:
    table = drawn(seed)
    theirs = nvtabular_of(
        table, lambda ops: COLUMNS >> ops.Filter(f=lambda df: (df["rating"] >= 3) & (df["time"] < 10))
    )
    assert ours(table, Filter(expression="rating >= 3 and time < 10"), COLUMNS) == theirs


@pytest.mark.parametrize("seed", range(3))
def test_dropna(seed: int) -> None:
    table = drawn(seed, missing=True)
    theirs = nvtabular_of(table, lambda ops: COLUMNS >> ops.Dropna())
    assert ours(table, Dropna(), COLUMNS) == theirs
    assert 0 < len(theirs["user"]) < table.num_rows


@pytest.mark.parametrize("shift", [1, 2, -1])
def test_difference_lag(shift: int) -> None:
    table = drawn(shift + 5, missing=True).sort_by([("user", "ascending"), ("time", "ascending")])
    columns = ["rating", "time"]
    theirs = nvtabular_of(table, lambda ops: columns >> ops.DifferenceLag(partition_cols=["user"], shift=shift))
    found = ours(table, DifferenceLag(columns=tuple(columns), by="user", order_by="time", shift=shift), list(theirs))
    assert sorted(theirs) == [f"rating_difference_lag_{shift}", f"time_difference_lag_{shift}"]
    for name, values in theirs.items():
        assert found[name] == [None if value is None or np.isnan(value) else value for value in values]


@pytest.mark.parametrize("by", [("user",), ("user", "item")])
@pytest.mark.parametrize("ascending", [True, False])
def test_groupby(by: tuple[str, ...], ascending: bool) -> None:
    table = drawn(5)
    every: tuple[Aggregation, ...] = get_args(Aggregation)
    options = {"aggs": {"rating": list(every), "time": ["first", "last"]}, "ascending": ascending}
    theirs = nvtabular_of(
        table, lambda ops: COLUMNS >> ops.Groupby(groupby_cols=list(by), sort_cols=["time"], **options)
    )
    found = ours(table, Groupby(by=by, order_by="time", **options), list(theirs))
    assert set(theirs) == {*by, *(f"rating_{name}" for name in every), "time_first", "time_last"}
    order = sorted(range(len(found["user"])), key=lambda place: [found[name][place] for name in by])
    for name, values in theirs.items():
        # pandas sorts groups by their keys, and says NaN where ours has null.
        expected = [None if isinstance(value, float) and np.isnan(value) else value for value in values]
        assert close([found[name][place] for place in order], expected), name


def test_groupby_leaves_rows_without_a_key_out() -> None:
    table = drawn(6, missing=True)
    theirs = nvtabular_of(
        table,
        lambda ops: (
            ["rating", "time"] >> ops.Groupby(groupby_cols=["rating"], sort_cols=["time"], aggs={"time": "list"})
        ),
    )
    found = ours(table, Groupby(by="rating", aggs={"time": "list"}, order_by="time"), ["rating", "time_list"])
    assert sorted(zip(*found.values(), strict=True)) == sorted(zip(theirs["rating"], theirs["time_list"], strict=True))
