"""ReduceDtypeSize: answers known by hand, on every engine."""

from __future__ import annotations

import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.ops import Clip, FillMissing, Normalize, ReduceDtypeSize
from tests.contract.ops.numeric_cases import assert_same, in_order, numbers_case
from tests.engines import LAYOUTS, NAN, Answer, answer, every_participant

INF = math.inf
TRAIN = {
    "tiny": pa.array([127, -128, None, 0], pa.int64()),
    "small": pa.array([128, None, 0, 1], pa.int64()),
    "middle": pa.array([-32769, 0, 0, None], pa.int64()),
    "wide": pa.array([2**31, 1, None, 0], pa.int64()),
    "huge": pa.array([2**64 - 1, 0, None, 1], pa.uint64()),
    "narrow": pa.array([1, 2, None, 3], pa.uint64()),
    "flag": [True, None, False, True],
    "real": [0.1, NAN, None, 1e300],
    "never": pa.array([None] * 4, pa.int32()),
    "nothing": pa.nulls(4),
    "lists": pa.array([[300, None], None, [], [-1]], pa.list_(pa.int64())),
}
VALID = {
    "tiny": pa.array([128, -129, None], pa.int64()), "small": pa.array([2**40, None, -(2**40)], pa.int64()),
    "middle": pa.array([2**31, -(2**31) - 1, 5], pa.int64()), "wide": pa.array([2**53 + 1, -(2**63), None], pa.int64()),
    "huge": pa.array([2**63, 2**63 - 1, None], pa.uint64()), "narrow": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "flag": [None, True, False], "real": [-INF, 2.5, None], "never": pa.array([1000, -1000, 5], pa.int32()),
    "nothing": pa.nulls(3), "lists": pa.array([[2**40, -(2**40)], None, [None]], pa.list_(pa.int64())),
}  # fmt: skip
EXPECTED: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "tiny": (pa.int8(), [127, -128, 0, 0], [127, -128, 0]),
    "small": (pa.int16(), [128, 0, 0, 1], [32767, 0, -32768]),
    "middle": (pa.int32(), [-32769, 0, 0, 0], [2**31 - 1, -(2**31), 5]),
    "wide": (pa.int64(), [2**31, 1, 0, 0], [2**53 + 1, -(2**63), 0]),
    "huge": (pa.int64(), [2**63 - 1, 0, 0, 1], [2**63 - 1, 2**63 - 1, 0]),
    "narrow": (pa.int8(), [1, 2, 0, 3], [127, 0, 0]),
    "flag": (pa.int8(), [1, 0, 0, 1], [0, 1, 0]),
    "real": (pa.float32(), [np.float32(0.1), NAN, NAN, INF], [-INF, 2.5, NAN]),
    "never": (pa.int8(), [0, 0, 0, 0], [127, -128, 5]),
    "nothing": (pa.float32(), [NAN] * 4, [NAN] * 3),
    "lists": (pa.list_(pa.int16()), [[300, 0], [], [], [-1]], [[32767, -32768], [], [0]]),
}


@cache
def made(name: str) -> Answer:
    """Return what an engine makes of the columns above."""
    with tempfile.TemporaryDirectory() as folder:
        return answer(name, numbers_case(TRAIN, ReduceDtypeSize(columns=tuple(TRAIN)), valid=VALID), Path(folder))


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_type_is_the_smallest_that_holds_train(name: str, layout: str) -> None:
    for column, (kind, train, valid) in EXPECTED.items():
        assert made(name).shards[layout, "valid", 0].schema.field(column).type == kind, column
        for split, expected in (("train", train), ("valid", valid)):
            found = in_order(made(name), column, split, layout=layout)
            assert repr(found) == repr(pa.array(expected, kind).to_pylist()), (column, split)


@every_participant
def test_schema_names_the_type(name: str) -> None:
    schema = made(name).fitted.schema("star")
    assert [schema[column].dtype for column in ("tiny", "middle", "real", "lists")] == [
        "int8",
        "int32",
        "float32",
        "int16",
    ]


@every_participant
def test_joined_column_is_measured_where_train_has_it(name: str, tmp_path: Path) -> None:
    items = {"item": [1, 2, 3, 4], "year": [100, None, -1, 1999], "code": pa.array([2**40 + 1, 7, None, 1])}
    op = ReduceDtypeSize(columns=("year", "code"))
    found = answer(name, numbers_case({"item": [1, 2, 3]}, op, valid={"item": [1, 4]}, items=items), tmp_path)
    assert found.tables["item"].column("year").to_pylist() == [0, 0, 0, 100, 0, -1, 127]
    assert in_order(found, "year", "valid", layout="flat") == [100, 127]  # the fourth item is not in train
    assert in_order(found, "code", layout="flat") == [2**40 + 1, 7, 0]
    types = [found.shards["flat", "train", 0].schema.field(column).type for column in ("year", "code")]
    assert types == [pa.int8(), pa.int64()]


@every_participant
def test_later_ops_calculate_with_the_type_found(name: str, tmp_path: Path) -> None:
    train = {"a": pa.array([1, 2, 3]), "b": pa.array([100, 0, None]), "c": [1.0, 2.0, None]}
    ops = (
        FillMissing(columns=("b", "c")), ReduceDtypeSize(columns=("a", "b", "c")), Normalize(columns=("a",)),
        Clip(columns=("b",), min_value=-1000, max_value=50),
    )  # fmt: skip
    found = answer(name, numbers_case(train, *ops, valid={**train, "a": [2000, 2, None]}), tmp_path)
    assert_same(in_order(found, "a"), [-1, 0, 1])
    assert_same(in_order(found, "a", "valid"), [125, 0, -2])  # 127, and 0 for the null
    assert in_order(found, "b") == [50, 0, 0]
    assert in_order(found, "c") == [1, 2, 0]


@every_participant
def test_no_row_at_all(name: str, tmp_path: Path) -> None:
    empty = {column: pa.array(values).slice(0, 0) for column, values in TRAIN.items()}
    found = answer(name, numbers_case(empty, ReduceDtypeSize(columns=tuple(TRAIN)), valid=VALID), tmp_path)
    assert in_order(found, "small", "valid") == [127, 0, -128]
    assert in_order(found, "lists", "valid") == [[127, -128], [], [0]]
