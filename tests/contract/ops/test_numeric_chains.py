"""Ops on numbers one after the other, as recipes have them: answers known by hand, and the same from every engine."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from recsys_cli.ops import (
    Bucketize,
    Categorify,
    Clip,
    FillMedian,
    FillMissing,
    LambdaOp,
    LogOp,
    Normalize,
    NormalizeMinMax,
    ReduceDtypeSize,
)
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.op import Op
from recsys_cli.registry import ENGINES
from tests.contract.ops.numeric_cases import assert_same, in_order, numbers_case
from tests.engines import LAYOUTS, NAN, PARTICIPANTS, Answer, answer, engine_of, every_participant, needs_all
from tests.strategies import Case

INF = math.inf


def criteo(*columns: str) -> tuple[Op, ...]:
    """Return what is done with the numbers of Criteo's logs."""
    return (
        FillMissing(columns=columns), Clip(columns=columns, min_value=0), LogOp(columns=columns), Normalize(columns=columns),
    )  # fmt: skip


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fill_clip_log_normalize(name: str, layout: str, tmp_path: Path) -> None:
    train = {"item": [1, 1, 2, 3], "clicks": pa.array([5, None, -2, 100], pa.int32()), "seen": [NAN, 0.0, 7.5, None]}
    items = {"item": [1, 2, 3], "price": [9.0, None, -1.0]}
    case = numbers_case(train, *criteo("clicks", "price", "seen"), valid={**train, "item": [3, 3, 4, 1]}, items=items)
    found = answer(name, case, tmp_path)

    def prepared(values: list[float], of: list[float] | None = None) -> list[float]:
        seen = np.log1p(values if of is None else of)
        return ((np.log1p(values) - seen.mean()) / seen.std(ddof=1)).tolist()

    assert_same(in_order(found, "clicks", layout=layout), prepared([5, 0, 0, 100]))
    assert_same(in_order(found, "seen", layout=layout), prepared([0, 0, 7.5, 0]))
    assert_same(in_order(found, "price", layout="flat"), prepared([9, 9, 0, 0]))
    assert_same(in_order(found, "price", "valid", layout="flat"), prepared([0, 0, 0, 9], [9, 9, 0, 0]))
    assert found.fitted.program.passes == 2  # the first makes the ids by which the prices are weighed


@every_participant
def test_what_is_filled_is_learnt_from_in_the_next_pass(name: str, tmp_path: Path) -> None:
    train = {"x": [1.0, None, 3.0, NAN, 11.0], "y": pa.array([4, 2, None, 0, 2])}
    ops = (
        FillMedian(columns=("x", "y")), Normalize(columns=("x",)), NormalizeMinMax(columns=("y",)),
        NormalizeMinMax(columns=("x",)),
    )  # fmt: skip
    found = answer(name, numbers_case(train, *ops), tmp_path)
    filled = np.array([1, 3, 3, 3, 11])
    assert found.fitted.program.passes == 3
    assert found.fitted.state[2, "x"].to_pylist() == [{"mean": 4.2, "std": pytest.approx(filled.std(ddof=1))}]
    assert_same(in_order(found, "x"), [0, 0.2, 0.2, 0.2, 1])
    assert_same(in_order(found, "y"), [1, 0.5, 0.5, 0, 0.5])


@every_participant
def test_with_ops_of_other_kinds(name: str, tmp_path: Path) -> None:
    train = {"x": [1.0, None, 3.0, 8.0], "y": pa.array([10, 20, 20, None])}
    ops = (
        LambdaOp(expression="x * 2", output="twice", dtype="float64"), FillMissing(columns=("y",), add_binary_cols=True),
        Normalize(columns=("twice",)), Bucketize(columns=("x",), boundaries=(2, 5)), Clip(columns=("y",), max_value=15),
        ReduceDtypeSize(columns=("y", "y_filled")), Categorify(columns=("y_filled",)),
        LambdaOp(expression="y + 1", output="more", dtype="int16"),
    )  # fmt: skip
    found = answer(name, numbers_case(train, *ops), tmp_path)
    assert_same(in_order(found, "twice"), ((np.array([2, NAN, 6, 16]) - 8) / math.sqrt(52)).tolist())
    assert in_order(found, "x") == [3, 1, 4, 5]
    assert in_order(found, "y") == [10, 15, 15, 0]
    assert in_order(found, "more") == [11, 16, 16, 1]
    assert found.vocabulary("y_filled") == {0: 3, 1: 1}


EVERY = ("x", "whole", "lists", "price")
ALL_OPS: tuple[Op, ...] = (
    FillMedian(columns=EVERY, add_binary_cols=True), Clip(columns=EVERY, min_value=-2, max_value=50.5), Normalize(columns=EVERY),
    NormalizeMinMax(columns=("x", "price")), ReduceDtypeSize(columns=("whole_filled", "x")),
    Bucketize(columns=("lists",), boundaries=(-0.123,)),
)  # fmt: skip


@needs_all
def test_what_one_engine_has_learnt_another_applies_from_files(tmp_path: Path) -> None:
    train = {
        "item": [1, 2, 2], "x": [1.0, NAN, 60.0], "whole": pa.array([1, None, 7]), "lists": [[1.0, None], [], [5.0]],
    }  # fmt: skip
    case = numbers_case(train, *ALL_OPS, items={"item": [1, 2], "price": [1.5, None]})
    made = {name: answer(name, case, tmp_path / name).fitted for name in ENGINES}
    tables = {}
    for name, fitted in made.items():
        (tmp_path / name / "kept").mkdir()
        fitted.write(tmp_path / name / "kept")
        read = FittedPlan.read(tmp_path / name / "kept")
        assert {at: table.to_pylist() for at, table in read.state.items()} == {
            at: table.to_pylist() for at, table in fitted.state.items()
        }
        other = next(engine for engine in ENGINES if engine != name)
        engine = engine_of(other, tmp_path)
        tables[other] = engine.apply(read.program.transforms(None), read, case.splits["train"])
    for column in ("x", "whole", "lists", "x_filled"):
        mine, theirs = (table.column(column).to_pylist() for table in tables.values())
        assert_same(mine, theirs, what=column)


REAL = st.sampled_from([None, NAN, 0.0, -0.0, 1.0, 1.5, -1.0, -7.25, 1e-3, 1e6, INF, -INF])
WHOLE = st.sampled_from([None, 0, 1, -1, 3, 127, 128, -40000])
OPS = st.sampled_from([
    lambda c: FillMissing(columns=c, fill_val=2), lambda c: FillMissing(columns=c, fill_val=-0.5, add_binary_cols=True),
    lambda c: FillMedian(columns=c), lambda c: FillMedian(columns=c, add_binary_cols=True),
    lambda c: Clip(columns=c, min_value=-1), lambda c: Clip(columns=c, min_value=0.25, max_value=100),
    lambda c: Normalize(columns=c), lambda c: NormalizeMinMax(columns=c), lambda c: ReduceDtypeSize(columns=c),
])  # fmt: skip
COLUMNS = st.lists(st.sampled_from(EVERY), min_size=1, unique=True).map(tuple)
LAST = st.sampled_from([
    (), (Bucketize(columns=EVERY, boundaries=(-0.123, 0.777, 50.5)),), (Clip(columns=EVERY, min_value=0), LogOp(columns=EVERY)),
])  # fmt: skip


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """Draw interactions of a few rows, a table, and up to four ops on any of their numbers."""

    def some(values: st.SearchStrategy[Any], size: int) -> list[Any]:
        return draw(st.lists(values, min_size=size, max_size=size) | st.just([None] * size))

    def rows(size: int) -> dict[str, Any]:
        return {
            "item": pa.array(some(st.sampled_from([None, 1, 2, 3]), size), pa.int64()),
            "x": pa.array(some(REAL, size), pa.float64()), "whole": pa.array(some(WHOLE, size), pa.int64()),
            "lists": pa.array(some(st.none() | st.lists(REAL, max_size=3), size), pa.list_(pa.float64())),
        }  # fmt: skip

    items = {"item": [1, 2, 9], "price": pa.array(some(REAL, 3), pa.float32())}
    first: tuple[Op, ...] = draw(st.sampled_from([(), (LogOp(columns=EVERY),), criteo(*EVERY)]))
    ops = [make(draw(COLUMNS)) for make in draw(st.lists(OPS, min_size=1, max_size=3))]
    return numbers_case(rows(draw(st.integers(0, 9))), *first, *ops, *draw(LAST), valid=rows(3), items=items)


@needs_all
@settings(max_examples=10, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(chains())
def test_engines_agree_on_chains(case: Case) -> None:
    made = []
    for name in PARTICIPANTS:
        with tempfile.TemporaryDirectory() as folder:
            made.append(answer(name, case, Path(folder)))
    for other in made[1:]:
        assert_same_tables(made[0], other)


def assert_same_tables(mine: Answer, theirs: Answer) -> None:
    assert mine.fitted.schema("star") == theirs.fitted.schema("star")
    assert mine.shards.keys() == theirs.shards.keys()
    for at, table in [*mine.shards.items(), *mine.tables.items()]:
        other = (theirs.shards if isinstance(at, tuple) else theirs.tables)[at]
        assert table.schema.equals(other.schema)
        for column in table.column_names:
            assert_same(table.column(column).to_pylist(), other.column(column).to_pylist(), what=f"{at} {column}")
