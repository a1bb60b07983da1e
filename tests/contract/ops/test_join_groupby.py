"""JoinGroupby: statistics known by hand, over several shards, in the interactions and in joined tables."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_cli.errors import ConfigError, DataError
from recsys_cli.features.columns import row_column
from recsys_cli.ops import Categorify, JoinExternal, JoinGroupby
from tests.engines import (
    LAYOUTS,
    NAN,
    PARTICIPANTS,
    Answer,
    answer,
    assert_close,
    engine_of,
    every_participant,
    interactions,
    needs_all,
    plan,
)
from tests.strategies import Case

TRAIN = interactions({
    "user": ["ann", "bob", "ann", None, "bob", "zoë", "ann", "ann"],
    "item": [10, 20, 20, 10, 10, 30, 10, 10],
    "day": [1.5, NAN, 1.5, None, -0.0, 0.0, 1.5, 1.5],
    "rating": [1.0, 2.0, 3.0, 4.0, NAN, None, 6.0, 6.0],
    "big": [2**50 + at for at in (1, 2, 3, 4, 5, 6, 8, 8)],
    "flag": [True, True, None, False, True, False, False, True],
})  # fmt: skip
VALID = interactions({
    "user": ["bob", "new", None, "zoë", "ann"],
    "item": [10, 40, 20, 30, 20],
    "day": [None, 0.0, 1.5, 7.0, NAN],
    "rating": [1.0] * 5, "big": [1] * 5, "flag": [True] * 5,
})  # fmt: skip
ITEMS = pa.table({"item": [10, 20, 30, 40], "year": [1999, 2001, 1999, 1999], "price": [1.0, 4.0, 6.0, 1e9]})
ALL = ("count", "sum", "mean", "std", "var", "min", "max")
CASE = Case({"train": TRAIN, "valid": VALID}, {"items": ITEMS}, plan(
    JoinExternal(table="items", on="item", columns=("year", "price")),
    JoinGroupby(columns=("user",), cont_cols=("rating",), stats=ALL),
    JoinGroupby(columns=("day", ("user", "day"))),
    JoinGroupby(columns=("user",), cont_cols=("big", "flag"), stats=("var", "mean")),
    JoinGroupby(columns=("year",), cont_cols=("price",), stats=("count", "mean", "var", "max")),
    Categorify(columns=("user", "item")),
    JoinGroupby(columns=("item",), cont_cols=("price", "rating"), stats=("count", "max")),
))  # fmt: skip


@cache
def known(name: str) -> Answer:
    """Return the engine's answer to the case above."""
    with tempfile.TemporaryDirectory() as folder:
        return answer(name, CASE, Path(folder))


def valid(name: str, column: str, layout: str = "star") -> list[Any]:
    return known(name).column(column, "valid", layout=layout)


@every_participant
def test_statistics_are_of_the_values_that_are_there(name: str) -> None:
    assert valid(name, "user_count") == [2, 0, 1, 1, 4]
    expected = {
        "sum": [2, NAN, 4, 0, 16], "mean": [2, NAN, 4, NAN, 4], "min": [2, NAN, 4, NAN, 1], "max": [2, NAN, 4, NAN, 6],
        "var": [NAN, NAN, NAN, NAN, 6], "std": [NAN, NAN, NAN, NAN, 6**0.5],
    }  # fmt: skip
    for stat, values in expected.items():
        assert valid(name, f"user_rating_{stat}") == pytest.approx(values, nan_ok=True), stat
    types = {field.name: field.type for field in known(name).shards["star", "valid", 0].schema}
    assert (types["user_count"], types["user_rating_sum"]) == (pa.int32(), pa.float32())


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_train_get_what_is_known_of_their_group(name: str, layout: str) -> None:
    made = known(name)
    users = {3: 4, 4: 2, 5: 1, 1: 1}  # ids: ann, bob, zoë, null
    assert made.column("user_count", layout=layout) == [users[user] for user in made.column("user")]


@every_participant
def test_null_and_nan_are_a_group_of_their_own_and_zero_has_no_sign(name: str) -> None:
    assert valid(name, "day_count") == [2, 2, 4, 0, 2]
    assert valid(name, "user_day_count") == [1, 0, 0, 0, 0]


@every_participant
def test_variance_of_large_numbers_keeps_its_digits(name: str) -> None:
    assert valid(name, "user_big_var")[4] == pytest.approx(np.var([1, 3, 8, 8], ddof=1))
    assert valid(name, "user_flag_mean") == pytest.approx([1, NAN, 0, 0, 2 / 3], nan_ok=True)


@every_participant
def test_a_table_is_described_as_if_it_were_joined(name: str) -> None:
    made = known(name)
    assert made.fitted.schema("star")["year_count"].table == "item"
    table = made.tables["item"]
    # Rows: padding, null, unseen, then 10 (five interactions of train), 20 (two), 30 (one), and one that train does not know.
    assert table.column("year_count").to_pylist() == [0, 0, 0, 6, 2, 6, 6]
    assert table.column("year_price_mean").to_pylist()[3:6] == pytest.approx([11 / 6, 4, 11 / 6])
    assert table.column("year_price_var").to_pylist()[3:6] == pytest.approx([25 / 6, 0, 25 / 6])
    for column in ("year_count", "year_price_max"):
        of_row = table.column(column).to_pylist()
        assert repr(valid(name, column, "flat")) == repr([of_row[r] for r in made.column(row_column("item"), "valid")])


@every_participant
def test_columns_of_several_places_are_described_in_the_interactions(name: str) -> None:
    assert known(name).fitted.schema("star")["item_price_max"].table is None
    assert valid(name, "item_count") == [5, 0, 2, 1, 2]
    assert valid(name, "item_price_max") == pytest.approx([1, NAN, 4, 6, 4], nan_ok=True)
    assert valid(name, "item_rating_max") == pytest.approx([6, NAN, 3, NAN, 3], nan_ok=True)


@every_participant
def test_rows_need_only_their_group_to_be_told_of_it(name: str, tmp_path: Path) -> None:
    engine = engine_of(name, tmp_path)
    program = known(name).fitted.program
    steps = [step for step in program.transforms(None) if step.writes[0] == "user_count"]
    rows = engine.apply(steps, known(name).fitted, VALID.select(["user"]))
    assert rows.column("user_rating_max").to_pylist() == [2, None, 4, None, 6]
    assert engine.apply(steps, known(name).fitted, VALID.select(["user"]).slice(0, 0)).num_rows == 0


@every_participant
def test_a_constant_has_no_variance_and_neither_has_one_row(name: str, tmp_path: Path) -> None:
    train = interactions({"user": [1, 1, 1, 2], "item": [1] * 4, "rating": [0.1, 0.1, 0.1, 5.0]})
    op = JoinGroupby(columns=("user",), cont_cols=("rating",), stats=("std", "mean"))
    made = answer(name, Case({"train": train}, {}, plan(op, Categorify(columns=("user", "item")))), tmp_path)
    found = dict(zip(made.column("user"), made.column("user_rating_std"), strict=True))
    assert found == pytest.approx({3: 0.0, 4: NAN}, nan_ok=True, abs=1e-12)


@every_participant
def test_no_train_row_at_all_leaves_every_group_unknown(name: str, tmp_path: Path) -> None:
    made = answer(name, Case({"train": TRAIN.slice(0, 0), "valid": VALID}, {"items": ITEMS}, CASE.plan), tmp_path)
    assert made.column("user_count", "valid") == made.column("year_count", "valid", layout="flat") == [0] * 5
    assert repr(made.column("user_rating_mean", "valid")) == repr([NAN] * 5)


def test_parts_may_be_merged_in_any_groups_of_neighbours() -> None:
    op = JoinGroupby(columns=("user",), cont_cols=("rating",), stats=ALL)
    rng = np.random.default_rng(0)
    rows = pl.DataFrame({"user": rng.integers(0, 5, 4000), "rating": rng.normal(1e6, 1, 4000)})
    parts = [
        op.learn(rows[at : at + 500].lazy(), pl.lit(1, pl.Int64))["user"].collect().to_arrow()
        for at in range(0, 4000, 500)
    ]
    merged = [
        op.merge(parts),
        op.merge([op.merge(parts[:3]), *parts[3:5], op.merge(parts[5:])]),
        op.merge([op.merge(parts)]),
    ]
    whole = (
        rows.group_by("user")
        .agg(pl.col("rating").var().alias("var"), pl.col("rating").mean().alias("mean"))
        .sort("user")
    )
    for table in merged:
        found = op.finalize({"user": table})["user"]
        assert found.column("count").to_pylist() == np.bincount(rows["user"]).tolist()
        assert found.column("var0").to_pylist() == pytest.approx(whole["var"].to_list(), rel=1e-9)
        assert found.column("mean0").to_pylist() == pytest.approx(whole["mean"].to_list(), rel=1e-14)


_DIGEST = """
import hashlib, numpy as np, pyarrow as pa
from recsys_cli.etl.polars_engine import PolarsEngine
from recsys_cli.ops import JoinGroupby
from recsys_cli.ops.steps import PlanStep
rng = np.random.default_rng(0)
rows = pa.table({"user": rng.integers(0, 3000, 300_000), "x": rng.normal(size=300_000) * 10.0 ** rng.integers(-9, 9, 300_000)})
op = JoinGroupby(columns=("user",), cont_cols=("x",), stats=("var",))
table = PolarsEngine(None).learn([(PlanStep(0, op, None, 0, ()), "fit")], None, rows)[0, "user"]
print(hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest())
"""


def test_sums_are_the_same_bytes_whatever_the_number_of_threads() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST], env=os.environ | {"POLARS_MAX_THREADS": threads}, check=True, text=True,
            capture_output=True,
        ).stdout
        for threads in ("1", "3", "8")
    }  # fmt: skip
    assert len(digests) == 1


def test_a_count_that_does_not_fit_is_an_error() -> None:
    op = JoinGroupby(columns=("user",))
    with pytest.raises(DataError, match="a group of user has more than 2147483647 rows"):
        op.finalize({"user": pa.table({"key0": ["a"], "rows": pa.array([2**31], pa.int64())})})


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (JoinGroupby(columns=("tags",)), "JoinGroupby: 'tags' holds a list in each row"),
        (
            JoinGroupby(columns=("item",), cont_cols=("user",), stats=("sum",)),
            "'user' holds string; numbers are needed",
        ),
        (JoinGroupby(columns=("item",), stats=("sum",)), "stats other than count need cont_cols"),
        (JoinGroupby(columns=("item",), cont_cols=("rating",)), "stats other than count need cont_cols"),
        (JoinGroupby(columns=("item", "item")), "the outputs item_count are repeated"),
    ],
)
def test_what_cannot_be_described_is_said_before_any_work(op: JoinGroupby, message: str) -> None:
    schema = TRAIN.append_column("tags", pa.array([["x"]] * 8)).schema
    with pytest.raises(ConfigError, match=message):
        plan(op, Categorify(columns=("user", "item"))).compile({"interactions": schema})


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    reals = st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, 1e6, 1e6 + 1, NAN, None])

    def rows(size: int) -> pa.Table:
        def column(values: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
            return pa.array(draw(st.lists(values, min_size=size, max_size=size)), kind)

        return pa.table({
            "user": column(st.sampled_from(["", "a", "b", "é", None]), pa.string()),
            "item": column(st.sampled_from([1, 2, 2**53 + 1, None]), pa.int64()),
            "day": column(st.sampled_from([0.0, -0.0, 1.5, NAN, None]), pa.float64()),
            "rating": column(reals, pa.float64()), "like": column(st.booleans() | st.none(), pa.bool_()),
        })  # fmt: skip

    op = JoinGroupby(
        columns=draw(st.sampled_from([("user",), ("day", ("user", "item")), ("year", ("item", "day"))])),
        cont_cols=draw(st.sampled_from([("rating",), ("rating", "like"), ("price",)])), stats=ALL,
    )  # fmt: skip
    price = draw(st.lists(reals, min_size=2, max_size=2))
    items = pa.table({"item": [1, 2], "year": pa.array([7, None], pa.int8()), "price": pa.array(price, pa.float64())})
    join = JoinExternal(table="items", on="item", columns=("year", "price"))
    ids = Categorify(columns=("user", "item", "year"))
    splits = {"train": rows(draw(st.integers(1, 12))), "valid": rows(draw(st.integers(0, 4)))}
    return Case(splits, {"items": items}, plan(join, ids, op))


@needs_all
@settings(max_examples=8, derandomize=True)
@given(random_cases())
def test_engines_agree(drawn: Case) -> None:
    made = []
    for name in PARTICIPANTS:
        with tempfile.TemporaryDirectory() as folder:
            made.append(answer(name, drawn, Path(folder)))
    for other in made[1:]:
        assert_close(made[0], other)
