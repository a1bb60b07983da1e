"""Bucketize: answers known by hand, on every engine."""

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

from recsys_cli.ops import Bucketize
from tests.contract.ops.numeric_cases import in_order, numbers_case
from tests.engines import LAYOUTS, NAN, Answer, answer, every_participant

INF = math.inf
ROWS = {
    "age": pa.array([17, 18, 29, 30, None, 200], pa.int16()),
    "real": [-0.0, 0.5, NAN, INF, -INF, None],
    "flag": [True, False, None, True, True, False],
    "big": pa.array([2**64 - 1, 0, None, 1, 2, 3], pa.uint64()),
    "nothing": pa.nulls(6),
    "lists": pa.array([[17.9, None], None, [], [NAN, INF], [18.0], [30.0]]),
}
BOUNDARIES = {
    "age": (18, 30), "real": (0.0,), "flag": (0.5,), "big": (1, 2, 2.5), "nothing": (1,), "lists": (18, 30),
}  # fmt: skip
EXPECTED: dict[str, list[Any]] = {
    "age": [3, 4, 4, 5, 1, 5], "real": [4, 4, 1, 4, 3, 1], "flag": [4, 3, 1, 4, 4, 3], "big": [6, 3, 1, 4, 5, 6],
    "nothing": [1] * 6, "lists": [[3, 1], [], [], [1, 5], [4], [5]],
}  # fmt: skip


@cache
def made(name: str) -> Answer:
    """Return what an engine makes of the columns above."""
    op = Bucketize(columns=tuple(ROWS), boundaries=BOUNDARIES)
    with tempfile.TemporaryDirectory() as folder:
        return answer(name, numbers_case(ROWS, op, valid=ROWS), Path(folder))


@every_participant
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ids_tell_the_interval(name: str, layout: str) -> None:
    for column, expected in EXPECTED.items():
        assert in_order(made(name), column, layout=layout) == expected, column
        assert in_order(made(name), column, "valid", layout=layout) == expected, column


@every_participant
def test_columns_are_categorical_without_a_vocabulary(name: str) -> None:
    schema = made(name).fitted.schema("star")
    for column, boundaries in BOUNDARIES.items():
        assert schema[column].cardinality == 4 + len(boundaries)
        assert (schema[column].vocabulary, schema[column].dtype) == (None, "int32")
        assert schema[column] in schema.categorical
    kinds = made(name).shards["star", "train", 0].schema
    assert (kinds.field("age").type, kinds.field("lists").type) == (pa.int32(), pa.list_(pa.int32()))


@every_participant
@pytest.mark.parametrize("count", [1, 5, 32, 33, 1000])
def test_any_number_of_boundaries_is_that_of_numpy(name: str, count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(count)
    boundaries = np.unique(rng.normal(size=count))
    values = np.concatenate([rng.normal(size=200), boundaries, [INF, -INF]])
    lists = pa.ListArray.from_arrays(pa.array(np.arange(len(values) + 1, dtype=np.int32)), pa.array(values))
    op = Bucketize(columns=("x", "in_lists"), boundaries=boundaries.tolist())
    found = answer(name, numbers_case({"x": values, "in_lists": lists}, op), tmp_path)
    expected = (3 + np.digitize(values, boundaries)).tolist()
    assert in_order(found, "x") == expected
    assert in_order(found, "in_lists") == [[code] for code in expected]


@every_participant
def test_joined_column(name: str, tmp_path: Path) -> None:
    items = {"item": [1, 2, 3], "price": [10.0, None, 25.0]}
    op = Bucketize(columns=("price",), boundaries=(20,))
    found = answer(name, numbers_case({"item": [1, 2, 3]}, op, valid={"item": [3, 9]}, items=items), tmp_path)
    assert in_order(found, "price", layout="flat") == [3, 1, 4]
    assert in_order(found, "price", "valid", layout="flat") == [4, 1]
    assert found.tables["item"].column("price").to_pylist() == [1, 1, 1, 3, 1, 4]


@every_participant
def test_no_row_at_all(name: str, tmp_path: Path) -> None:
    empty = {column: pa.array(values).slice(0, 0) for column, values in ROWS.items()}
    op = Bucketize(columns=tuple(ROWS), boundaries=BOUNDARIES)
    found = answer(name, numbers_case(empty, op, valid=ROWS), tmp_path)
    assert in_order(found, "lists", "valid") == EXPECTED["lists"]
    assert found.fitted.schema("star")["age"].cardinality == 6


@pytest.mark.parametrize(
    ("boundaries", "problem"),
    [
        ((), "age has no boundary"),
        ((30, 18), r"the boundaries of age have to ascend: 30\.0, 18\.0"),
        ((18, 18.0), "have to ascend"),
        ((2**53, 2**53 + 1), "have to ascend"),  # as float64 they are one
        ((18, INF), "finite number"),
        ({"age": (18,), "height": (2,)}, r"names \['age', 'height'\], but the columns are \['age'\]"),
        ({}, "but the columns are"),
    ],
)
def test_boundaries_have_to_ascend_and_be_given(boundaries: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Bucketize(columns=("age",), boundaries=boundaries)
