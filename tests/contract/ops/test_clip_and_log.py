"""Clip and LogOp: answers known by hand, on every engine."""

from __future__ import annotations

import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from recsys_cli.errors import ConfigError
from recsys_cli.ops import Categorify, Clip, LogOp
from recsys_cli.ops.op import Op
from tests.contract.ops.numeric_cases import assert_same, in_order, numbers_case
from tests.engines import LAYOUTS, NAN, Answer, answer, every_participant

INF = math.inf
TRAIN = {
    "real": [1.0, None, NAN, INF, -3.0, -INF],
    "single": pa.array([0.1, None, NAN, 7.5, -1.0, 0.0], pa.float32()),
    "whole": pa.array([5, None, 2**53 + 1, -1, 0, 3], pa.int64()),
    "flag": [True, False, None, True, True, False],
    "huge": pa.array([2**64 - 1, 0, None, 1, 2, 3], pa.uint64()),
    "nothing": pa.nulls(6),
    "lists": pa.array([[1.0, None], None, [], [NAN, INF], [-2.0], [4.0]]),
    "wholes": pa.array([[1, None], None, [], [7], [-1], [3]], pa.list_(pa.int16())),
}
COLUMNS = tuple(TRAIN)


@cache
def made(name: str, op: Op) -> Answer:
    """Return what an engine makes of the columns above."""
    with tempfile.TemporaryDirectory() as folder:
        return answer(name, numbers_case(TRAIN, op, valid=TRAIN), Path(folder))


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_clip_brings_numbers_to_its_bounds(name: str, layout: str) -> None:
    expected: dict[str, list[Any]] = {
        "real": [1, NAN, NAN, 3, 0, 0], "single": [0.1, NAN, NAN, 3, 0, 0], "whole": [3, NAN, 3, 0, 0, 3],
        "flag": [1, 0, NAN, 1, 1, 0], "huge": [3, 0, NAN, 1, 2, 3], "nothing": [NAN] * 6,
        "lists": [[1, NAN], [], [], [NAN, 3], [0], [3]], "wholes": [[1, NAN], [], [], [3], [0], [3]],
    }  # fmt: skip
    found = made(name, Clip(columns=COLUMNS, min_value=0, max_value=3))
    for column, values in expected.items():
        assert_same(in_order(found, column, layout=layout), values, what=column)
        assert_same(in_order(found, column, "valid", layout=layout), values, what=column)


@every_participant
def test_clip_with_one_bound(name: str, tmp_path: Path) -> None:
    ops = (Clip(columns=("real", "whole"), min_value=-0.5), Clip(columns=("flag", "lists"), max_value=0.5))
    found = answer(name, numbers_case(TRAIN, *ops), tmp_path)
    assert_same(in_order(found, "real"), [1, NAN, NAN, INF, -0.5, -0.5])
    assert_same(in_order(found, "whole"), [5, NAN, 2**53 + 1, -0.5, 0, 3])
    assert_same(in_order(found, "flag"), [0.5, 0, NAN, 0.5, 0.5, 0])
    assert_same(in_order(found, "lists"), [[0.5, NAN], [], [], [NAN, 0.5], [-2], [0.5]])


@every_participant
def test_clip_keeps_whole_numbers_to_the_last_digit(name: str, tmp_path: Path) -> None:
    ops = (
        Clip(columns=("whole",), min_value=0.0, max_value=2**53 + 3),
        Clip(columns=("huge",), min_value=1, max_value=2**63 - 1),
        Categorify(columns=("whole", "huge")),
    )
    found = answer(name, numbers_case(TRAIN, *ops), tmp_path)
    assert sorted(found.vocabulary("whole")) == [0, 3, 5, 2**53 + 1]
    assert sorted(found.vocabulary("huge")) == [1, 2, 3, 2**63 - 1]


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_log_is_that_of_one_more(name: str, layout: str) -> None:
    log = math.log
    expected: dict[str, list[Any]] = {
        "real": [log(2), NAN, NAN, INF, NAN, NAN], "single": [log(1.1), NAN, NAN, log(8.5), -INF, 0],
        "whole": [log(6), NAN, 53 * log(2), -INF, 0, log(4)], "flag": [log(2), 0, NAN, log(2), log(2), 0],
        "huge": [64 * log(2), 0, NAN, log(2), log(3), log(4)], "nothing": [NAN] * 6,
        "lists": [[log(2), NAN], [], [], [NAN, INF], [NAN], [log(5)]],
        "wholes": [[log(2), NAN], [], [], [log(8)], [-INF], [log(4)]],
    }  # fmt: skip
    found = made(name, LogOp(columns=COLUMNS))
    for column, values in expected.items():
        assert_same(in_order(found, column, layout=layout), values, what=column)
        assert_same(in_order(found, column, "valid", layout=layout), values, what=column)


@every_participant
def test_log_has_the_digits_of_a_small_number(name: str, tmp_path: Path) -> None:
    train = {"small": [1e-5, 1e-9, -1e-7]}
    found = answer(name, numbers_case(train, LogOp(columns=("small",))), tmp_path)
    assert in_order(found, "small") == pytest.approx([math.log1p(x) for x in train["small"]], rel=1e-6)


@every_participant
def test_clip_and_log_of_joined_columns(name: str, tmp_path: Path) -> None:
    items = {"item": [1, 2, 3], "price": [math.e - 1, -5.0, None], "sizes": [[0.0, None], None, [9.0]]}
    ops = (Clip(columns=("price", "sizes"), min_value=0, max_value=7), LogOp(columns=("price", "sizes")))
    found = answer(name, numbers_case({"item": [1, 2, 3, 3]}, *ops, valid={"item": [7]}, items=items), tmp_path)
    assert_same(in_order(found, "price", layout="flat"), [1, 0, NAN, NAN])
    assert_same(in_order(found, "sizes", layout="flat"), [[0, NAN], [], [math.log(8)], [math.log(8)]])
    assert_same(in_order(found, "price", "valid", layout="flat"), [NAN])


@every_participant
def test_no_row_at_all(name: str, tmp_path: Path) -> None:
    ops = (Clip(columns=COLUMNS, min_value=0), LogOp(columns=COLUMNS))
    empty = {column: pa.array(values).slice(0, 0) for column, values in TRAIN.items()}
    found = answer(
        name, numbers_case(empty, *ops, valid={name: pa.array(v).slice(0, 1) for name, v in TRAIN.items()}), tmp_path
    )
    assert_same(in_order(found, "wholes", "valid"), [[math.log(2), NAN]])


def test_clip_needs_bounds_in_order() -> None:
    with pytest.raises(ValidationError, match="needs min_value, max_value or both"):
        Clip(columns=("price",))
    with pytest.raises(ValidationError, match=r"min_value 3 is above max_value 2\.5"):
        Clip(columns=("price",), min_value=3, max_value=2.5)
    with pytest.raises(ValidationError, match="finite number"):
        Clip(columns=("price",), min_value=NAN)
    assert Clip(columns=("price",), min_value=2, max_value=2).min_value == 2


@pytest.mark.parametrize(
    "op", [Clip(columns=("word",), min_value=0), LogOp(columns=("word",)), LogOp(columns=("item",))]
)
def test_only_numbers_can_be_calculated_with(op: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=f"{op.name}: '(word' holds string|item' holds encoded ids); numbers are needed"
    ):
        answer("polars", numbers_case({"word": ["a"]}, op), tmp_path)
