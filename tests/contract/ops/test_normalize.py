"""Normalize and NormalizeMinMax: answers known by hand, on every engine."""

from __future__ import annotations

import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from recsys_cli.ops import Normalize, NormalizeMinMax
from recsys_cli.ops.op import Op
from tests.contract.ops.numeric_cases import assert_same, in_order, numbers_case
from tests.engines import LAYOUTS, NAN, Answer, answer, every_participant

INF = math.inf
TRAIN = {
    "real": [1.0, None, NAN, INF, -1.0, 3.0],  # 1, -1, 3: mean 1, deviation 2
    "whole": pa.array([2**40, None, 2**40 + 2048, 2**40 - 2048, 2**40, 2**40], pa.int64()),
    "flag": [True, False, None, True, False, None],
    "same": pa.array([0.1] * 5 + [None]),  # its mean is not quite 0.1
    "zero": pa.array([0, 0, None, 0, 0, 0], pa.int8()),
    "once": [None, 7.5, None, None, None, INF],
    "nothing": pa.nulls(6),
    "lists": pa.array([[1.0, None], None, [], [NAN, INF], [-1.0], [3.0]]),
}
VALID = {
    "real": [5.0, None, -INF], "whole": pa.array([2**40 + 4096, None, 0], pa.int64()), "flag": [True, None, False],
    "same": [0.1, NAN, 2.1], "zero": pa.array([0, None, 3], pa.int8()), "once": [7.5, 8.0, INF], "nothing": pa.nulls(3),
    "lists": pa.array([[5.0, None], None, [1.0, -INF]]),
}  # fmt: skip
COLUMNS = tuple(TRAIN)


@cache
def made(name: str, op: Op) -> Answer:
    """Return what an engine makes of the columns above."""
    with tempfile.TemporaryDirectory() as folder:
        return answer(name, numbers_case(TRAIN, op, valid=VALID), Path(folder))


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_normalize_has_mean_0_and_deviation_1(name: str, layout: str) -> None:
    half, third, root = 0.5, math.sqrt(0.75), math.sqrt(2)
    expected: dict[str, tuple[list[Any], list[Any]]] = {
        "real": ([0, NAN, NAN, INF, -1, 1], [2, NAN, -INF]),
        "whole": ([0, NAN, root, -root, 0, 0], [2 * root, NAN, -(2**40) / 2048 * root]),
        "flag": ([third, -third, NAN, third, -third, NAN], [third, NAN, -third]),
        "same": ([0, 0, 0, 0, 0, NAN], [0, NAN, 2]),
        "zero": ([0, 0, NAN, 0, 0, 0], [0, NAN, 3]),
        "once": ([NAN, 0, NAN, NAN, NAN, INF], [0, half, INF]),
        "nothing": ([NAN] * 6, [NAN] * 3),
        "lists": ([[0, NAN], [], [], [NAN, INF], [-1], [1]], [[2, NAN], [], [0, -INF]]),
    }
    found = made(name, Normalize(columns=COLUMNS))
    for column, (train, valid) in expected.items():
        assert_same(in_order(found, column, layout=layout), train, what=column)
        assert_same(in_order(found, column, "valid", layout=layout), valid, what=column)


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_min_max_maps_train_to_0_and_1(name: str, layout: str) -> None:
    expected: dict[str, tuple[list[Any], list[Any]]] = {
        "real": ([0.5, NAN, NAN, INF, 0, 1], [1.5, NAN, -INF]),
        "whole": ([0.5, NAN, 1, 0, 0.5, 0.5], [1.5, NAN, (2048 - 2**40) / 4096]),
        "flag": ([1, 0, NAN, 1, 0, NAN], [1, NAN, 0]),
        "same": ([0.5] * 5 + [NAN], [0.5, NAN, 0.5]),
        "zero": ([0.5, 0.5, NAN, 0.5, 0.5, 0.5], [0.5, NAN, 0.5]),
        "once": ([NAN, 0.5, NAN, NAN, NAN, 0.5], [0.5, 0.5, 0.5]),
        "nothing": ([NAN] * 6, [NAN] * 3),
        "lists": ([[0.5, NAN], [], [], [NAN, INF], [0], [1]], [[1.5, NAN], [], [0.5, -INF]]),
    }
    found = made(name, NormalizeMinMax(columns=COLUMNS))
    for column, (train, valid) in expected.items():
        assert_same(in_order(found, column, layout=layout), train, what=column)
        assert_same(in_order(found, column, "valid", layout=layout), valid, what=column)


@every_participant
def test_deviation_keeps_its_digits_beside_a_large_mean(name: str, tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=1000)
    train = {"time": 1.7e9 + values, "tiny": 1e-200 * values, "far": 1e140 * values}
    found = answer(name, numbers_case(train, Normalize(columns=tuple(train))), tmp_path)
    for column, shifted in train.items():
        learnt = found.fitted.state[1, column].to_pylist()[0]
        if column != "tiny":  # whose squares are 0
            assert learnt["std"] == pytest.approx(np.std(shifted, ddof=1), rel=1e-8)
        assert learnt["mean"] == pytest.approx(np.mean(shifted), rel=1e-12)


@every_participant
def test_numbers_too_large_to_square_become_0(name: str, tmp_path: Path) -> None:
    train = {"large": [1e300, -1e300, 1.0, NAN], "largest": [1.7e308, 1.7e308, 1.6e308, 1e308]}
    found = answer(name, numbers_case(train, Normalize(columns=tuple(train))), tmp_path)
    assert_same(in_order(found, "large"), [0, 0, 0, NAN])
    assert_same(in_order(found, "largest"), [0, 0, 0, 0])


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_joined_columns_are_weighed_by_the_train_interactions(name: str, layout: str, tmp_path: Path) -> None:
    # price in train: 1 twice and 4 once; the fourth item is not in train, the third has no price.
    train = {"item": [1, 1, 2, 3, None]}
    items = {"item": [1, 2, 3, 4], "price": [1.0, 4.0, None, 1000.0], "size": [[0, 3], [], None, [99]]}
    items |= {"again": items["price"]}
    ops = (Normalize(columns=("price", "size")), NormalizeMinMax(columns=("again",)))
    found = answer(name, numbers_case(train, *ops, valid={"item": [2, 4]}, items=items), tmp_path)
    root = math.sqrt(3)
    assert_same(in_order(found, "price", layout="flat"), [-1 / root, -1 / root, 2 / root, NAN, NAN])
    assert_same(in_order(found, "price", "valid", layout="flat"), [2 / root, 998 / root])
    assert_same(in_order(found, "again", layout="flat"), [0, 0, 1, NAN, NAN])
    low = math.sqrt(0.75)
    assert_same(in_order(found, "size", layout="flat"), [[-low, low], [-low, low], [], [], []])
    assert found.fitted.state[2, "price"].to_pylist() == [{"mean": pytest.approx(2), "std": pytest.approx(root)}]


@every_participant
def test_nothing_learnt_without_a_row_of_train(name: str, tmp_path: Path) -> None:
    empty = {column: pa.array(values).slice(0, 0) for column, values in TRAIN.items()}
    ops = (Normalize(columns=("real", "lists")), NormalizeMinMax(columns=("whole", "flag")))
    found = answer(name, numbers_case(empty, *ops, valid=VALID), tmp_path)
    assert_same(in_order(found, "real", "valid"), [5, NAN, -INF])
    assert_same(in_order(found, "lists", "valid"), [[5, NAN], [], [1, -INF]])
    assert_same(in_order(found, "whole", "valid"), [0.5, NAN, 0.5])


@every_participant
def test_one_row_of_train(name: str, tmp_path: Path) -> None:
    train, valid = {"real": [3.0], "other": [3.0]}, {"real": [3.0, 5.0], "other": [3.0, 5.0]}
    ops = (Normalize(columns=("real",)), NormalizeMinMax(columns=("other",)))
    found = answer(name, numbers_case(train, *ops, valid=valid), tmp_path)
    assert (found.column("real"), found.column("other")) == ([0], [0.5])
    assert (in_order(found, "real", "valid"), in_order(found, "other", "valid")) == ([0, 2], [0.5, 0.5])


def test_moments_are_the_same_whoever_merged_which() -> None:
    op = Normalize(columns=("x",))
    values = np.random.default_rng(1).normal(size=(7, 30)) + 1e6
    parts = [
        pa.table({
            "count": [part.size], "mean": [part.mean()], "squares": [part.var() * part.size], "low": [part.min()],
            "high": [part.max()],
        })
        for part in values
    ]  # fmt: skip
    merge, finalize = op.merge, op.finalize
    at_once = finalize({"x": merge(parts)})
    for cut in range(1, 7):
        in_two = merge([merge(parts[:cut]), merge(parts[cut:])])
        assert finalize({"x": in_two})["x"].equals(at_once["x"])
    assert at_once["x"].to_pylist() == [
        {"mean": pytest.approx(values.mean(), rel=1e-12), "std": pytest.approx(values.std(ddof=1), rel=1e-9)}
    ]


@pytest.mark.parametrize("kind", ["normal", "far from zero", "wide", "constant", "huge", "one"])
def test_moments_are_the_same_bytes_in_any_order_and_for_rows_that_count_more_often(kind: str) -> None:
    """Engines read rows of a table as often as they come, or count them so; threads add in orders of their own."""
    rng = np.random.default_rng(0)
    values = {
        "normal": rng.normal(size=10_001), "far from zero": 1.7e9 + rng.random(10_001), "wide": rng.normal(size=999) ** 9,
        "constant": np.full(77, 0.1), "huge": rng.normal(size=50) * 1e300, "one": np.array([7.5]),
    }[kind]  # fmt: skip
    times = rng.integers(1, 5, len(values))
    repeated = rng.permutation(np.repeat(values, times))
    op = Normalize(columns=("x",))
    weighted = op.learn(pl.LazyFrame({"x": values, "times": times}), pl.col("times"))["x"]
    told = weighted.collect().to_dicts()[0]
    expected = op.learn(pl.LazyFrame({"x": repeated}), pl.lit(1, pl.Int64))["x"].collect().to_dicts()[0]
    assert {name: float(value).hex() for name, value in told.items()} == {
        name: float(value).hex() for name, value in expected.items()
    }
    if kind != "huge":
        assert expected["mean"] == pytest.approx(repeated.mean(), rel=1e-12)
        exact = math.fsum((value - repeated.mean()) ** 2 for value in repeated.tolist())
        assert expected["squares"] == pytest.approx(exact, rel=1e-9, abs=1e-25)
