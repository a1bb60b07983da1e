"""Columns that ONNX files calculate or look up: expressions, statistics and encodings of one key; equal to the row encoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import polars as pl
import pyarrow as pa
import pytest
from onnx import helper

import recsys_cli as recsys
from recsys_cli.ops import LambdaOp
from recsys_cli.serving.encoder.lambda_op import compiled
from recsys_cli.serving.encoder.values import Values
from recsys_cli.serving.export.artifact import load_onnx
from recsys_cli.serving.export.feeding import feed
from recsys_cli.serving.export.graph import Graph, Outside
from recsys_cli.serving.export.onnx_expressions import calculate
from recsys_cli.serving.export.raw_inputs import raw_value
from recsys_cli.serving.recommender import Recommender
from recsys_cli.stages.export import export, served_run

TYPES = {"a": pa.int64(), "b": pa.float64(), "c": pa.int32(), "flag": pa.bool_()}
A = [0, -7, 3, None, 2**40, 86_399, -86_401, 1]
B = [0.0, -2.5, None, 3.0, float("inf"), 1e300, -0.5, 300.7]
C = [0, 1, -1, 100, None, 3, 7, 2**31 - 1]
FLAG = [True, None, False, True, False, None, True, False]
EXPRESSIONS = (
    "a + c * 2 - 1", "a / c", "b / c + -a", "a * b", "0 - flag", "b > 1", "a != c", "a == 3.0", "c <= 2",
    "b > 1 and flag", "b > 1 or flag", "not (a < c) or is_null(b)", "not a", "is_null(a + b)", "is_null(a) == is_null(b)",
    "if(a > c, a, c)", "if(flag, b, a)", "b if is_null(a) else a", "if(b < 0, 1, 2.5)", "hour(a)", "minute(a * 60)", "weekday(a)",
    "weekday(b)", "hour(a + b)", "a", "b - b",
)  # fmt: skip


def rows_of(size: int) -> dict[str, list[Any]]:
    """Edge values of all columns, each next to each in a row of 257."""
    rng = np.random.default_rng(size)
    picked = {name: rng.integers(len(A), size=size) for name in TYPES}
    return {name: [values[row] for row in picked[name]] for name, values in zip(TYPES, (A, B, C, FLAG), strict=True)}


def encoded(op: LambdaOp, rows: Mapping[str, list[Any]]) -> np.ndarray[Any, Any]:
    """Calculate by the row encoder."""
    columns = {}
    for name, kind in TYPES.items():
        nulls = np.array([value is None for value in rows[name]])
        missing = np.nan if name == "b" else 0
        data = np.array(
            [missing if value is None else value for value in rows[name]], str(kind).replace("double", "float64")
        )
        columns[name] = Values(data, None if name == "b" else nulls)
    with np.errstate(all="ignore"):
        compiled(op, {}, dict(TYPES))(columns, len(rows["a"]))
    return columns["out"].data


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64"])
def test_expressions_equal_the_row_encoder(dtype: Any) -> None:
    for expression in EXPRESSIONS:
        op, graph = LambdaOp(expression=expression, output="out", dtype=dtype), Graph()
        columns = {name: raw_value(graph, name, kind) for name, kind in TYPES.items() if name in op.reads}
        calculate(graph, op, {}, columns, frozenset({"out"}))
        out = helper.make_tensor_value_info(columns["out"].data, 11 if dtype.startswith("float") else 7, ["batch"])
        body = helper.make_graph(graph.nodes, "expression", graph.value_infos(), [out], graph.constants)
        model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for size in (1, 2, 257):
            rows = rows_of(size)
            (found,) = session.run(None, feed(list(graph.inputs.values()), rows, {}))
            np.testing.assert_array_equal(found, encoded(op, rows), err_msg=f"{expression} as {dtype}, {size} rows")


@pytest.mark.parametrize("expression", ["length(city) > 2", "city == 'Ulm'", "year(a)", "1 + 1"])
def test_other_expressions_stay_outside(expression: str) -> None:
    graph = Graph()
    columns = {name: raw_value(graph, name, kind) for name, kind in {**TYPES, "city": pa.string()}.items()}
    with pytest.raises(Outside, match="ONNX form"):
        calculate(graph, LambdaOp(expression=expression, output="out"), {}, columns, frozenset({"out"}))


NUMBERS = [
    "city_count", "movieId_count", "mix", "age", "price", "height", "city_pages_mean", "city_pages_max", "movieId_pages_mean",
    "movieId_pages_max", "pages", "TE_city_pages", "TE_userId_pages",
]  # fmt: skip
OPS: list[dict[str, Any]] = [
    {"op": "TargetEncoding", "columns": ["city", "userId"], "target": ["rating", "pages"]},
    {"op": "JoinGroupby", "columns": ["city", "movieId"], "cont_cols": ["pages"], "stats": ["count", "mean", "max"]},
    {"op": "LambdaOp", "expression": "price * 2 + pages / 100 - age", "output": "mix"},
    {"op": "LambdaOp", "expression": "price > 2 and not is_null(age)", "output": "dear", "dtype": "int8"},
    {"op": "Categorify", "columns": ["userId", "movieId", "city"]},
    {"op": "JoinGroupby", "columns": ["userId", ["userId", "city"]], "stats": ["count"]},
    {"op": "FillMissing", "columns": NUMBERS[2:]},
    {"op": "Normalize", "columns": NUMBERS},
]  # fmt: skip


@pytest.fixture(scope="module")
def run(export_workspace: recsys.Workspace, interactions: pl.DataFrame) -> recsys.TrainedRun:
    """A model of lookups and expressions, on text with nulls and on integers."""
    columns = {"user": "userId", "item": "movieId", "rating": "rating", "timestamp": "timestamp"}
    frame = interactions.drop("tags", "strengths", "agent")
    train = {"epochs": 1, "batch_size": 64, "device": "cpu", "learning_rate": 0.03}
    values = recsys.config_from_frame(frame, export_workspace, **columns, model="fm", train=train).model_dump()
    values["features"]["ops"] = [*OPS, *values["features"]["ops"][1:]]
    config = recsys.load_config(values)
    recsys.etl(config, export_workspace, progress=False)
    return recsys.train(config, export_workspace, progress=False)


def test_lookups_of_one_key_are_in_the_file(
    run: recsys.TrainedRun, export_workspace: recsys.Workspace, tmp_path: Path
) -> None:
    made = export(run, export_workspace, kind="onnx", out=tmp_path / "out")

    assert made.verified == 400
    assert max(made.manifest["differences"].values()) < 1e-5
    assert made.manifest["encoded"] == {"userId_city_count": "JoinGroupby of several columns has no ONNX form"}
    row = {"userId": 3, "movieId": 4, "city": "Ulm", "age": 40, "price": 2.5, "pages": 100, "height": 1.2}
    rows = {name: [value] * 7 for name, value in row.items()}
    rows |= {"city": ["Ulm", None, "", "Paris", "Bonn", "Ulm", "Ulm"], "userId": [None, 999, 1, 2, 3, 4, 5]}
    rows |= {"movieId": [1, 2, 3, None, 999, 17, 5], "price": [None, 2.0, 2.1, -1, 1e9, 3, 2]}
    expected = Recommender(served_run(run, export_workspace)).score(rows)
    np.testing.assert_allclose(load_onnx(made.folder).score(rows), expected, atol=1e-6, rtol=1e-5)
