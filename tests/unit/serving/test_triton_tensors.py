"""Raw columns as Triton tensors and back, generated configs, and errors of single requests; without a server."""

from __future__ import annotations

import importlib.util
import math
import runpy
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recsys_cli.errors import ConfigError, DataError, MissingExtraError
from recsys_cli.serving.export.triton.backend import RecommendModel, ScoreModel, Tensor, columns_of, query_inputs
from recsys_cli.serving.export.triton.repository import config_pbtxt, quoted, write_model
from recsys_cli.serving.raw_values import reader
from recsys_cli.serving.recommender import Recommender
from tests.triton_server import installed_server

Recommenders = Callable[[str], Recommender]

COLUMNS = {
    "int64": (pa.int64(), [1, None, -(2**63), 2**63 - 1]),
    "int8": (pa.int8(), [1, None, -128]),
    "uint64": (pa.uint64(), [2**64 - 1, None]),
    "double": (pa.float64(), [0.1, None, math.nan, -0.0, math.inf]),
    "float": (pa.float32(), [0.1, None]),
    "bool": (pa.bool_(), [True, None, False]),
    "text": (pa.string(), ["", None, "ä", "\0", "null"]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", None]),
    "bytes": (pa.binary(), [b"\xff", None, b""]),
    "decimal": (pa.decimal128(20, 2), [Decimal("1.10"), None]),
    "timestamp": (pa.timestamp("us"), [datetime(2026, 1, 31, 12), None]),
    "date": (pa.date32(), [date(2026, 1, 31), None]),
    "nothing": (pa.null(), [None, None]),
    "texts": (pa.list_(pa.string()), [["a", None, ""], [], None, ["b"]]),
    "numbers": (pa.list_(pa.int64()), [[1, None], [2, 3, 4]]),
    "reals": (pa.large_list(pa.float32()), [[0.5, None], []]),
    "no elements": (pa.list_(pa.int64()), [[], None]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_equal_after_the_way_through_tensors(name: str) -> None:
    kind, values = COLUMNS[name]
    tensor = Tensor.of("x", kind)
    expected = reader("x", kind)(values)
    given = {"rows": np.zeros((len(values), 1)), **tensor.write(kind, values)}
    assert all(len(part) == len(values) and part.ndim == 2 for part in given.values())
    columns, rows = columns_of(given, [tensor])
    actual = reader("x", kind)(columns["x"])
    assert rows == len(values)
    assert (actual.offsets is None) == (expected.offsets is None)
    if expected.offsets is not None:
        np.testing.assert_array_equal(actual.offsets, expected.offsets)
    nulls = np.zeros(len(expected.data), bool) if expected.nulls is None else expected.nulls
    np.testing.assert_array_equal(np.zeros(len(nulls), bool) if actual.nulls is None else actual.nulls, nulls)
    np.testing.assert_array_equal(actual.data[~nulls], expected.data[~nulls])


def test_absent_columns_and_lists_of_length_minus_one_are_null() -> None:
    tensors = [Tensor("x", "INT64"), Tensor("tags", "STRING", ragged=True)]
    given = {"tags": np.array([[b"a", b""], [b"", b""]], object), "tags.length": np.array([[1], [-1]])}
    assert columns_of(given, tensors)[0] == {"x": [None, None], "tags": [["a"], None]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no inputs"),
        ({"x": np.zeros((2, 3)), "x.length": np.array([[1], [4]])}, "x.length has 4, and the lists of x have 3 places"),
        ({"x": np.zeros((2, 3)), "x.length": np.array([[-2], [1]])}, "x.length has -2"),
        ({"x": np.zeros((2, 3)), "x.null": np.zeros((2, 2), bool)}, "x.null has shape"),
    ],
)
def test_impossible_requests_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        columns_of(given, [Tensor("x", "FP64", ragged=True)])


def test_config_has_types() -> None:
    inputs = [Tensor('a "b"\n', "STRING", required=True), Tensor("tags", "INT64", ragged=True, masked=False)]
    text = config_pbtxt("m", "Rows.\nscore", inputs=inputs, outputs=[Tensor("score", "FP32")], bundle="../b")
    assert text.count("input {") == 4
    assert r'name: "a \042b\042\012"' in text
    assert quoted("ä") == r'"\303\244"'


def test_columns_with_the_name_of_a_mask_are_refused() -> None:
    inputs = [Tensor("x", "INT64"), Tensor("x.null", "INT64")]
    with pytest.raises(ConfigError, match=r"x\.null has the name of a null mask"):
        config_pbtxt("m", "", inputs=inputs, outputs=[], bundle="")


def test_an_error_of_one_request_leaves_the_others(recommenders: Recommenders) -> None:
    model = RecommendModel()
    model.recommender = recommenders("ease")
    model.inputs, model.outputs = query_inputs(model.recommender.served), {"item": "INT64"}
    good = {"user": np.array([[1], [2]]), "k": np.array([[2], [3]])}
    bad = {"user": np.array([[1]]), "k": np.array([[0]])}
    first, refused, second = model.outcomes([good, bad, good])
    assert isinstance(refused, ConfigError)
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["item"].tolist() == second["item"].tolist()
    assert first["length"].tolist() == [[1], [2]] or first["length"].tolist() == [[2], [3]]


def test_requests_of_a_batch_have_their_own_scores(recommenders: Recommenders) -> None:
    model = ScoreModel()
    model.recommender = recommenders("mf")
    model.inputs = [Tensor("userId", "INT64"), Tensor("movieId", "INT64")]
    users = np.arange(1, 7).reshape(-1, 1)
    parts = [{"userId": users[rows], "movieId": users[rows]} for rows in (slice(0, 1), slice(1, 4), slice(4, 6))]
    parts[1]["userId.null"] = np.zeros((3, 1), bool)
    expected = model.recommender.score({"userId": list(range(1, 7)), "movieId": list(range(1, 7))})
    actual = model.outcomes(parts)
    assert [len(part["score"]) for part in actual if isinstance(part, dict)] == [1, 3, 2]
    np.testing.assert_allclose(np.concatenate([part["score"].ravel() for part in actual]), expected, rtol=1e-6)  # type: ignore[call-overload, index]


def test_a_missing_wheel_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="'triton' extra"):
        installed_server()


@pytest.mark.parametrize("model", [ScoreModel, RecommendModel])
def test_a_program_of_a_repository_is_the_import_of_its_model(model: type, tmp_path: Path) -> None:
    write_model(tmp_path, "", model.__name__, "raw rows to scores")
    assert runpy.run_path(str(tmp_path / "1" / "model.py"))["TritonPythonModel"] is model
