"""Groupby: groups spread over all batches and buckets, in the order of their first rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recsys_cli.errors import ConfigError
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.spec import Spec
from recsys_cli.ops import Deduplicate, Filter, Groupby, LambdaOp
from recsys_cli.ops.groupby import Aggregation
from tests.rows import NAN, close, in_order, plain_rows, send, tables

TABLE = pa.table({
    "user": ["b", "a", "b", None, "a", "b", "c"],
    "item": pa.array([1, 2, 3, 4, 5, None, 7], pa.int32()),
    "time": [30, 20, 10, 5, 20, 40, None],
    "rating": [1.0, 2.0, 4.0, 8.0, 16.0, NAN, None],
})  # fmt: skip
EVERY: tuple[Aggregation, ...] = get_args(Aggregation)


def grouped(**options: Any) -> Any:
    op = Groupby(by="user", **options)
    return send(TABLE, op, want=["user", *(name for name, _, _ in op.made())])


def test_groups_have_the_order_and_numbers_of_their_first_rows() -> None:
    sent = grouped(order_by="time", aggs={"item": ("list", "first", "last"), "time": "last"})
    assert sent.numbers == [0, 1, 6]
    assert sent.column("user") == ["b", "a", "c"]
    assert sent.column("item_list") == [[3, 1, None], [2, 5], [7]]
    assert sent.column("item_first") == [3, 2, 7]
    assert sent.column("item_last") == [None, 5, 7]
    assert sent.column("time_last") == [40, 20, None]
    assert sent.table.schema.field("item_list").type == pa.list_(pa.int32())
    assert sent.counts == [("Groupby", 7, 3)]


def test_without_an_order_lists_follow_the_input() -> None:
    sent = grouped(aggs={"item": "list"}, name_sep="-")
    assert sent.column("item-list") == [[1, 3, None], [2, 5], [7]]


def test_descending_reverses_lists_only() -> None:
    sent = grouped(order_by="time", ascending=False, aggs={"item": ("list", "first", "last")})
    assert sent.column("item_list") == [[None, 1, 3], [5, 2], [7]]
    assert sent.column("item_first") == [3, 2, 7]


def test_every_aggregation_of_numbers_with_nulls() -> None:
    sent = grouped(order_by="time", aggs={"rating": EVERY})
    expected: dict[str, list[Any]] = {
        "list": [[4.0, 1.0, None], [2.0, 16.0], [None]],
        "first": [4.0, 2.0, None],
        "last": [None, 16.0, None],
        "count": [2, 2, 0],
        "nunique": [2, 2, 0],
        "sum": [5.0, 18.0, 0.0],
        "mean": [2.5, 9.0, None],
        "median": [2.5, 9.0, None],
        "std": [pytest.approx(4.5**0.5), pytest.approx(98**0.5), None],
        "var": [4.5, 98.0, None],
        "min": [1.0, 2.0, None],
        "max": [4.0, 16.0, None],
    }
    assert {name: sent.column(f"rating_{name}") for name in EVERY} == expected
    types = {name: sent.table.schema.field(f"rating_{name}").type for name in EVERY}
    assert {name for name, kind in types.items() if kind == pa.int32()} == {"count", "nunique"}


def test_ops_after_groups_work_on_them() -> None:
    ops = (
        Groupby(by="user", order_by="time", aggs={"item": ("list", "count"), "time": "last"}),
        LambdaOp(expression="item_count > 1", output="many", dtype="int8"),
        Filter(expression="many"),
        Deduplicate(columns="item_count", keep="last"),
    )
    sent = send(TABLE, *ops, want=["user", "item_list", "many", "time_last"])
    assert sent.column("user") == ["a"]
    assert set(sent.table.column_names) == {"user", "item_list", "item_count", "time_last", "many", ROW_NUMBER}
    assert sent.source.passes == 1
    assert sent.chosen.estimated_rows(1000) == 1000  # lists have as many values as before


def test_groups_of_groups() -> None:
    ops = (
        Groupby(by=("user", "time"), aggs={"item": ("count", "max")}),
        Groupby(by="user", order_by="time", aggs={"item_count": "sum", "item_max": "list"}),
    )
    sent = send(TABLE, *ops, want=["user", "item_count_sum", "item_max_list"])
    assert sent.column("user") == ["b", "a"]  # c has no time, so no group
    assert sent.column("item_count_sum") == [2.0, 2.0]
    assert sent.column("item_max_list") == [[3, 1, None], [5]]


def test_result_is_independent_of_bucket_size() -> None:
    rng = np.random.default_rng(2)
    table = pa.table(
        {"user": rng.integers(0, 9, 2000) ** 2, "value": rng.normal(size=2000) * 10.0 ** rng.integers(-9, 9, 2000)}
    )
    op = Groupby(by="user", aggs={"value": ("sum", "mean", "std", "var")})
    want = [f"value_{name}" for name in op.aggs["value"]]
    few, many = (send(table, op, want=want, size=100, size_of_buckets=size) for size in (10**9, 64))
    assert repr(few.table.to_pydict()) == repr(many.table.to_pydict())


def test_empty_input_keeps_its_types() -> None:
    op = Groupby(by="user", aggs={"item": ("list", "last"), "rating": "mean"})
    sent = send(TABLE.slice(0, 0), op, want=["user", "item_list", "item_last", "rating_mean"])
    assert sent.table.num_rows == 0
    types = [sent.table.schema.field(name).type for name in ("item_list", "item_last", "rating_mean")]
    assert types == [pa.list_(pa.int32()), pa.int32(), pa.float64()]


def test_strings_dictionaries_and_booleans() -> None:
    table = pa.table({
        "user": pa.array(["x", "y", "x"]).dictionary_encode(), "word": pa.array(["é", "a", None], pa.large_string()),
        "flag": [True, None, True],
    })  # fmt: skip
    op = Groupby(by="user", aggs={"word": ("list", "min"), "flag": ("sum", "list", "max")})
    sent = send(table, op, want=["user", "word_list", "word_min", "flag_sum", "flag_list", "flag_max"])
    assert sent.column("word_list") == [["é", None], ["a"]]
    assert sent.column("word_min") == ["é", "a"]
    assert sent.column("flag_sum") == [2.0, 0.0]
    assert sent.column("flag_list") == [[True, True], [None]]
    assert sent.column("flag_max") == [True, None]


def test_unsupported_aggregation_is_refused() -> None:
    with pytest.raises(ConfigError, match="'item' holds string; numbers are needed"):
        Groupby(by="user", aggs={"item": "mean"}).outputs({"user": Spec(pa.int64()), "item": Spec(pa.string())})
    with pytest.raises(ConfigError, match="'item' holds a list in each row"):
        Groupby(by="user", aggs={"item": "list"}).outputs(
            {"user": Spec(pa.int64()), "item": Spec(pa.list_(pa.int64()))}
        )
    with pytest.raises(ConfigError, match="the output 'a_list' is repeated"):
        Groupby(by="a_list", aggs={"a": "list"}).outputs({"a": Spec(pa.int64()), "a_list": Spec(pa.int64())})
    with pytest.raises(ValidationError, match="Input should be 'list', 'first'"):
        Groupby.model_validate({"by": "user", "aggs": {"item": "mode"}})


def test_ids_stay_ids_in_lists() -> None:
    ids = Spec(pa.int32(), categorical=True, cardinality=9, dtype="int32")
    made = Groupby(by="user", aggs={"item": ("list", "count")}).outputs({"user": Spec(pa.int64()), "item": ids})
    assert made["item_list"] == Spec(pa.list_(pa.int32()), categorical=True, cardinality=9, dtype="int32")
    assert made["item_count"] == Spec(pa.int32(), dtype="int32")


def reference(
    table: pa.Table, by: Sequence[str], order_by: Sequence[str]
) -> list[tuple[int, tuple[Any, ...], dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in in_order(plain_rows(table), order_by):
        if all(row[name] is not None for name in by):
            groups.setdefault(tuple(row[name] for name in by), []).append(row)
    return sorted(
        (min(row[ROW_NUMBER] for row in rows), key, _aggregates([row["value"] for row in rows]))
        for key, rows in groups.items()
    )


def _aggregates(values: list[Any]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    real = [float(value) for value in known]
    several = len(real) > 1
    return {
        "list": values, "first": values[0], "last": values[-1], "count": len(known), "nunique": len(set(known)),
        "sum": float(sum(real)), "mean": statistics.fmean(real) if real else None,
        "median": statistics.median(real) if real else None, "min": min(known, default=None), "max": max(known, default=None),
        "std": statistics.stdev(real) if several else None, "var": statistics.variance(real) if several else None,
    }  # fmt: skip


@settings(max_examples=60, derandomize=True)
@given(
    tables(), st.sampled_from([("user",), ("user", "item")]), st.sampled_from([(), ("time",), ("time", "item")]),
    st.integers(1, 5),
)  # fmt: skip
def test_groupby_equals_a_naive_loop(
    table: pa.Table, by: tuple[str, ...], order_by: tuple[str, ...], size: int
) -> None:
    op = Groupby(by=by, order_by=order_by, aggs={"value": EVERY})
    sent = send(table, op, want=[*by, *(name for name, _, _ in op.made())], size=size)
    expected = reference(table, by, order_by)
    assert sent.numbers == [number for number, _, _ in expected]
    for place, (_, key, values) in enumerate(expected):
        assert tuple(sent.column(name)[place] for name in by) == key
        for name, value in values.items():
            found = sent.column(f"value_{name}")[place]
            assert close(found, value), name
