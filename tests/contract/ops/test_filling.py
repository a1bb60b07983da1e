"""FillMissing and FillMedian: answers known by hand, on every engine."""

from __future__ import annotations

import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from recsys_cli.ops import Categorify, FillMedian, FillMissing
from recsys_cli.ops.op import Op
from tests.contract.ops.numeric_cases import assert_same, in_order, numbers_case
from tests.engines import LAYOUTS, NAN, Answer, answer, every_participant

INF = math.inf
TRAIN = {
    "real": [1.0, None, NAN, INF, -3.0, 4.0],
    "whole": pa.array([5, None, 2**53 + 1, -1, 0, 3], pa.int64()),
    "narrow": pa.array([7, None, 7, 7, None, 7], pa.int8()),
    "flag": [True, False, None, True, True, False],
    "huge": pa.array([2**64 - 1, 0, None, 1, 2, 3], pa.uint64()),
    "exact": pa.array([None, 1, 2, 3, 4, 5], pa.decimal128(9, 2)),
    "nothing": pa.nulls(6),
    "never": pa.array([None] * 6, pa.float32()),
    "lists": pa.array([[1.0, None], None, [], [NAN, INF], [2.0], [4.0]]),
    "wholes": pa.array([[1, None], None, [], [7], [2], [3]], pa.list_(pa.int16())),
}
VALID = {name: pa.array(values).slice(1, 2) for name, values in TRAIN.items()}
COLUMNS = tuple(TRAIN)
FILLED: dict[str, list[Any]] = {
    "real": [1, 9, 9, INF, -3, 4], "whole": [5, 9, 2**53, -1, 0, 3], "narrow": [7, 9, 7, 7, 9, 7], "flag": [1, 0, 9, 1, 1, 0],
    "huge": [2.0**64, 0, 9, 1, 2, 3], "exact": [9, 1, 2, 3, 4, 5], "nothing": [9] * 6, "never": [9] * 6,
    "lists": [[1, 9], [], [], [9, INF], [2], [4]], "wholes": [[1, 9], [], [], [7], [2], [3]],
}  # fmt: skip
"""What FillMissing makes of train with 9."""
WHERE: dict[str, list[Any]] = {
    "real": [0, 1, 1, 0, 0, 0], "whole": [0, 1, 0, 0, 0, 0], "narrow": [0, 1, 0, 0, 1, 0], "flag": [0, 0, 1, 0, 0, 0],
    "huge": [0, 0, 1, 0, 0, 0], "exact": [1, 0, 0, 0, 0, 0], "nothing": [1] * 6, "never": [1] * 6,
    "lists": [[0, 1], [], [], [1, 0], [0], [0]], "wholes": [[0, 1], [], [], [0], [0], [0]],
}  # fmt: skip
MEDIANS = {
    "real": 1, "whole": 3, "narrow": 7, "flag": 1, "huge": 2, "exact": 3, "nothing": 0, "never": 0, "lists": 2, "wholes": 2.5,
}  # fmt: skip


@cache
def made(name: str, op: Op) -> Answer:
    """Return what an engine makes of the columns above."""
    with tempfile.TemporaryDirectory() as folder:
        return answer(name, numbers_case(TRAIN, op, valid=VALID), Path(folder))


MISSING = FillMissing(columns=COLUMNS, fill_val=9, add_binary_cols=True)
MEDIAN = FillMedian(columns=COLUMNS, add_binary_cols=True)


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_fill_missing_puts_the_constant_for_null_and_nan(name: str, layout: str) -> None:
    for column, expected in FILLED.items():
        assert_same(in_order(made(name, MISSING), column, layout=layout), expected, what=column)
        assert_same(in_order(made(name, MISSING), column, "valid", layout=layout), expected[1:3], what=column)


@every_participant
@pytest.mark.parametrize("op", [MISSING, MEDIAN], ids=["missing", "median"])
def test_indicators_say_where_it_was_filled(name: str, op: Op) -> None:
    for column, expected in WHERE.items():
        assert in_order(made(name, op), f"{column}_filled") == expected, column
        kind = made(name, op).shards["star", "train", 0].schema.field(f"{column}_filled").type
        assert kind == (pa.list_(pa.int8()) if column in {"lists", "wholes"} else pa.int8())


@every_participant
def test_fill_median_puts_the_median_of_train(name: str) -> None:
    for column, median in MEDIANS.items():
        expected = [
            [median if one == 9 else one for one in row] if isinstance(row, list) else median if row == 9 else row
            for row in FILLED[column]
        ]
        assert_same(in_order(made(name, MEDIAN), column), expected, what=column)
        assert_same(in_order(made(name, MEDIAN), column, "valid"), expected[1:3], what=column)


@every_participant
def test_fill_missing_keeps_whole_numbers_to_the_last_digit(name: str, tmp_path: Path) -> None:
    columns = ("whole", "huge")
    ops = (FillMissing(columns=columns, fill_val=2**53), Categorify(columns=columns))
    found = answer(name, numbers_case(TRAIN, *ops), tmp_path)
    assert sorted(found.vocabulary("whole")) == [-1, 0, 3, 5, 2**53, 2**53 + 1]
    assert sorted(found.vocabulary("huge")) == [0, 1, 2, 3, 2**53, 2**64 - 1]


@every_participant
def test_fill_missing_with_a_fraction_makes_real_numbers(name: str, tmp_path: Path) -> None:
    op = FillMissing(columns=("whole", "flag"), fill_val=-0.5)
    found = answer(name, numbers_case(TRAIN, op), tmp_path)
    assert_same(in_order(found, "whole"), [5, -0.5, 2**53, -1, 0, 3])
    assert_same(in_order(found, "flag"), [1, 0, -0.5, 1, 1, 0])
    assert "whole_filled" not in found.fitted.schema("star").names


@every_participant
@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_median_is_that_of_numpy_over_all_parts(name: str, size: int, tmp_path: Path) -> None:
    values = np.random.default_rng(size).normal(size=size).round(1)  # ties as well
    found = answer(name, numbers_case({"value": np.append(values, NAN)}, FillMedian(columns=("value",))), tmp_path)
    assert found.fitted.state[1, "value"].to_pylist() == [{"median": pytest.approx(np.median(values), rel=1e-12)}]


@every_participant
def test_median_of_two_large_numbers_is_between_them(name: str, tmp_path: Path) -> None:
    found = answer(name, numbers_case({"value": [1.5e308, NAN, 1.7e308]}, FillMedian(columns=("value",))), tmp_path)
    assert found.fitted.state[1, "value"].to_pylist() == [{"median": pytest.approx(1.6e308, rel=1e-12)}]


@every_participant
def test_median_of_a_joined_column_weighs_the_train_interactions(name: str, tmp_path: Path) -> None:
    train = {"item": [1, 1, 1, 2, 3, None, 9]}
    items = {"item": [1, 2, 3, 4], "price": [10.0, 20.0, None, 1000.0], "sizes": [[1, None], [], None, [5, 5, 5]]}
    op = FillMedian(columns=("price", "sizes"), add_binary_cols=True)
    found = answer(name, numbers_case(train, op, valid={"item": [4, 5]}, items=items), tmp_path)
    # price: 10 three times and 20 once; sizes: 1 three times; the fourth item is not in train.
    assert_same(in_order(found, "price", layout="flat"), [10, 10, 10, 20, 10, 10, 10])
    assert in_order(found, "price_filled", layout="flat") == [0, 0, 0, 0, 1, 1, 1]
    assert_same(in_order(found, "sizes", layout="flat"), [[1, 1]] * 3 + [[]] * 4)
    assert_same(in_order(found, "price", "valid", layout="flat"), [1000, 10])
    assert found.tables["item"].column("price_filled").to_pylist() == [1, 1, 1, 0, 0, 1, 1, 0]


@every_participant
def test_median_without_a_row_of_train_is_0(name: str, tmp_path: Path) -> None:
    empty = {column: pa.array(values).slice(0, 0) for column, values in TRAIN.items()}
    found = answer(name, numbers_case(empty, MEDIAN, valid={**TRAIN}), tmp_path)
    assert_same(in_order(found, "real", "valid"), [1, 0, 0, INF, -3, 4])
    assert_same(in_order(found, "lists", "valid"), [[1, 0], [], [], [0, INF], [2], [4]])
    assert in_order(found, "real_filled", "valid") == WHERE["real"]


def test_fill_refuses_what_makes_no_sense() -> None:
    for constant in (NAN, INF, "many", None):
        with pytest.raises(ValidationError, match="fill_val"):
            FillMissing(columns=("price",), fill_val=constant)
    for op in (FillMissing, FillMedian):
        with pytest.raises(ValidationError, match="add_binary_cols would overwrite the columns price_filled"):
            op(columns=("price", "price_filled"), add_binary_cols=True)
        with pytest.raises(ValidationError, match="named twice: price"):
            op(columns=("price", "price"))
        with pytest.raises(ValidationError, match="at least 1 item"):
            op(columns=())
