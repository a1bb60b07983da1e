"""Raw rows of the demo and of MovieLens, and plans with every kind of op, encoded one by one and compared with prepared files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recsys_cli.batch import Ragged
from recsys_cli.config import RunConfig
from recsys_cli.config.load import load
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.etl.reading.reader import Inputs
from recsys_cli.etl.transform import flattened
from recsys_cli.features.columns import ROW_NUMBER, row_column
from recsys_cli.features.schema import NULL
from recsys_cli.loader.tables import DimensionTables
from recsys_cli.ops import AddTags, DifferenceLag, Filter, Groupby, JoinExternal, LambdaOp, NegativeSampling
from recsys_cli.ops.fitted_plan import FittedPlan
from recsys_cli.ops.op import Op
from recsys_cli.ops.values import Values, mapped
from recsys_cli.ops.vocabulary import VocabularyIndex
from recsys_cli.serving.encoder import Lists, Node, RowEncoder, compile_nodes
from recsys_cli.serving.ids import open_index, write_index
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl
from recsys_cli.workspace import PreparedData, Workspace

CONFIGS = Path(__file__).resolve().parents[4] / "configs"
NAN = float("nan")


def raw_rows(config: RunConfig, workspace: Workspace) -> pa.Table:
    """Return the raw interactions in order."""
    (reader,) = Inputs.of(config, workspace.raw(config.dataset.name).folder).interactions.values()
    reader.columns = None
    return pa.concat_tables(list(reader.batches()))


def encoder_of(data: PreparedData, *, flat: bool = False, **options: Any) -> RowEncoder:
    fitted = FittedPlan.read(data.folder)
    if flat:
        fitted = flattened(fitted, {key: pq.read_table(data.table(key)) for key in fitted.program.keys})
    return RowEncoder(fitted, data.schema, **options)


def as_rows(encoded: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return encoded columns as lists of Python values."""
    rows = {}
    for name, values in encoded.items():
        if isinstance(values, Lists):
            rows[name] = [values.values[start:stop].tolist() for start, stop in pairwise(values.offsets)]
        else:
            rows[name] = values.tolist()
    return rows


def assert_all_rows_equal(data: PreparedData, raw: pa.Table, *, flat: bool = False) -> int:
    """Encode every row of valid and test from its raw values, and compare it with the prepared files to the bit."""
    encoder, compared = encoder_of(data, flat=flat), 0
    for split in ("valid", "test"):
        for path in data.shards(split):
            prepared = pq.read_table(path)
            rows = raw.take(prepared.column(ROW_NUMBER)).select(list(encoder.inputs))
            together = as_rows(encoder.arrays(rows.to_pydict()))
            assert set(together) <= set(prepared.column_names)
            for name, values in together.items():
                assert repr(values) == repr(prepared.column(name).to_pylist()), (split, name)
            for at, row in enumerate(rows.to_pylist()):
                alone = as_rows(encoder.arrays({name: [value] for name, value in row.items()}))
                assert {name: repr(values[at]) for name, values in together.items()} == {
                    name: repr(value) for name, (value,) in alone.items()
                }
            compared += prepared.num_rows
    return compared


@pytest.mark.parametrize("layout", ["star", "flat"])
def test_every_row_of_the_demo(layout: str, workspace: Workspace) -> None:
    config = load(CONFIGS / "demo.yaml", [f"etl.layout={layout}"])
    download(config.dataset, workspace)
    data = etl(config, workspace).artifact
    compared = assert_all_rows_equal(data, raw_rows(config, workspace), flat=layout == "flat")
    assert compared == data.rows("valid") + data.rows("test") > 1000
    assert [column.name for column in encoder_of(data).columns] == ["userId", "movieId"], "the table has the genres"
    spelled = encoder_of(data).arrays({"userId": [7, " 7", "7.0", "", None], "movieId": [1] * 5})["userId"]
    assert spelled.tolist() == [spelled[0]] * 3 + [NULL] * 2


RICH: list[dict[str, Any]] = [
    {"op": "JoinExternal", "table": "movies", "on": "movieId", "columns": ["genres", "title"]},
    {"op": "LambdaOp", "expression": "hour(timestamp)", "output": "hour", "dtype": "int8"},
    {"op": "LambdaOp", "expression": "weekday(timestamp) >= 5", "output": "weekend", "dtype": "float32"},
    {"op": "HashedCross", "columns": ["userId", "hour"], "num_buckets": 100},
    {"op": "Categorify", "columns": ["userId", "movieId", "genres", "title"], "freq_threshold": 2},
    {"op": "JoinGroupby", "columns": ["movieId", ["userId", "hour"]], "cont_cols": ["rating"],
     "stats": ["count", "mean", "std", "max"]},
    {"op": "TargetEncoding", "columns": ["userId", "hour"], "target": "rating"},
    {"op": "LogOp", "columns": ["movieId_count"]},
    {"op": "Clip", "columns": ["movieId_rating_mean"], "min_value": 1, "max_value": 4.5},
    {"op": "FillMedian", "columns": ["movieId_rating_mean"], "add_binary_cols": True},
    {"op": "Normalize", "columns": ["movieId_rating_mean", "movieId_count"]},
    {"op": "Bucketize", "columns": ["hour"], "boundaries": [6, 12, 18]},
    {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"},
]  # fmt: skip


@pytest.mark.parametrize("method", ["random", "temporal"])
def test_every_row_of_movielens_with_many_ops(method: str, shared_data: Path, workspace: Workspace) -> None:
    base = load(CONFIGS / "ml-latest-small.yaml").model_dump(include={"dataset", "features"})
    means = [f"{group}_rating_{stat}" for group in ("movieId", "userId_hour") for stat in ("mean", "std", "max")]
    features = base["features"] | {"ops": RICH, "known": [*means, "movieId_rating_mean_filled"]}
    split = {"method": method, "valid": 0.1, "test": 0.1}
    config = RunConfig.model_validate({"dataset": base["dataset"], "features": features, "split": split})
    download(config.dataset, workspace, from_file=shared_data / "ml-latest-small.zip")
    data = etl(config, workspace).artifact
    encoder = encoder_of(data)
    assert set(encoder.inputs) == {"userId", "movieId", "timestamp"}
    compared = assert_all_rows_equal(data, raw_rows(config, workspace))
    assert compared == data.rows("valid") + data.rows("test") > 15_000
    cold = row_column("movieId") in pq.read_table(data.shards("test")[0]).column_names
    assert cold or method == "random", "the case has cold items"


TRAIN = pa.table({
    "user": ["007", "8", "007", None, "9", "8"],
    "item": pa.array([10, 20, 20, 30, 10, 10], pa.int32()),
    "tags": pa.array([["x", "y", "z"], [], None, ["y"], ["x"], ["q"]]),
    "scores": pa.array([[1.0, 2.0, 0.5], [], None, [4.0], [0.25], [1.0]]),
    "rating": pa.array([5.0, 1.0, 3.5, None, 4.0, 2.0], pa.float32()),
    "price": [1.0, None, 3.0, 5.0, 2.0, 2.0],
    "time": [60, 50, 40, 30, 20, 10],
})  # fmt: skip
ITEMS = pa.table(
    {"item": [10, 20, 30, 40], "genres": [["a", "b"], ["b"], None, ["a"]], "year": [1999, None, 2001, 2002]}
)
KEYS = {"op": "Categorify", "columns": ["user", "item"]}
LABEL = {"op": "LambdaOp", "expression": "rating > 3", "output": "label", "dtype": "int8"}
JOIN = {"op": "JoinExternal", "table": "items", "on": "item", "columns": ["genres", "year"]}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pq.write_table(TRAIN, "train.parquet")
    pq.write_table(ITEMS, "items.parquet")
    return tmp_path


def prepared(workspace: Workspace, *ops: Mapping[str, Any], layout: str = "star", **features: Any) -> PreparedData:
    document = {
        "dataset": {"name": "files", "interactions": "train.parquet", "tables": {"items": "items.parquet"}},
        "split": {"method": "files", "train": "train.parquet", "valid": "train.parquet"},
        "features": {"user": "user", "item": "item", "label": "label", "timestamp": "time", "ops": [*ops, LABEL]} | features,
        "etl": {"layout": layout, "engine": "polars"},
    }  # fmt: skip
    return etl(RunConfig.model_validate(document), workspace).artifact


ONE = {"user": ["8"], "item": [20]}


def test_labels_weights_and_times_are_not_needed(here: Path, workspace: Workspace) -> None:
    ops = ({"op": "FillMissing", "columns": ["price", "rating"], "fill_val": 0}, KEYS)
    data = prepared(workspace, *ops, weight="rating")
    encoder = encoder_of(data)
    assert set(encoder.inputs) == {"user", "item", "price"}
    assert as_rows(encoder.arrays(ONE | {"price": [None]}))["price"] == [0.0]


def test_a_missing_feature_column_is_named_and_null_is_a_value(here: Path, workspace: Workspace) -> None:
    data = prepared(workspace, KEYS, {"op": "FillMissing", "columns": ["price"], "fill_val": -1})
    encoder = encoder_of(data)
    with pytest.raises(DataError, match=r"no column .*; the columns are user") as error:
        encoder.encode({"user": ["8"]})
    assert sorted(error.value.message.split("; ")[0].removeprefix("no column ").split(", ")) == ["item", "price"]
    with pytest.raises(DataError, match=r"column item has 2 rows, and .* has 1"):
        encoder.encode({"user": ["8"], "item": [10, 20], "price": [1.0]})
    with pytest.raises(DataError, match=r"row 2, column item: 4\.5 is no int32"):
        encoder.encode({"user": ["8", "9"], "item": [1, 4.5], "price": [1.0, 2.0]})
    encoded = encoder.encode({"user": [None], "item": [None], "price": [None], "more": ["ignored"]})
    assert {name: values.tolist() for name, values in encoded.items()} == {"user": [1], "item": [1], "price": [-1.0]}  # type: ignore[union-attr]


def test_features_are_tensors_as_the_loader_gives_them(here: Path, workspace: Workspace) -> None:
    ops = (
        KEYS, {"op": "Categorify", "columns": ["tags"]},
        {"op": "LambdaOp", "expression": "price", "output": "cost", "dtype": "float64"},
        {"op": "LambdaOp", "expression": "price", "output": "whole", "dtype": "int16"},
        {"op": "Normalize", "columns": ["scores"]},
    )  # fmt: skip
    encoder = encoder_of(prepared(workspace, *ops, list_weights={"tags": "scores"}))
    rows = {
        "user": ["8", "x"],
        "item": [20, 10],
        "tags": [["x", "new"], None],
        "scores": [[1, 2], None],
        "price": [2.5, None],
    }
    features = encoder.encode(rows)
    assert set(features) == {"user", "item", "tags", "cost", "whole"}
    types = {name: values.dtype for name, values in features.items() if isinstance(values, torch.Tensor)}
    assert types == {"user": torch.int32, "item": torch.int32, "cost": torch.float32, "whole": torch.float32}
    tags = features["tags"]
    assert isinstance(tags, Ragged)
    assert (tags.values.tolist(), tags.offsets.tolist()) == ([3, 2], [0, 2, 2])
    assert tags.weights is not None
    assert tags.weights.dtype == torch.float32
    with pytest.raises(DataError, match="row 2: tags has 1 elements, and scores has 0"):
        encoder.encode(rows | {"tags": [["x", "new"], ["x"]]})


def test_the_tables_of_cold_items_are_joined_by_the_row(here: Path, workspace: Workspace) -> None:
    ops = (JOIN, KEYS, {"op": "Categorify", "columns": ["genres"]}, {"op": "FillMissing", "columns": ["year"]})
    data = prepared(workspace, *ops)
    features = encoder_of(data).encode({"user": ["8", "8", "8", None], "item": [40, 10, 99, None]})
    assert features["item"].tolist() == [2, 3, 2, 1]  # type: ignore[union-attr]
    rows = features[row_column("item")]
    assert rows.tolist() == [6, 3, 2, 1]  # type: ignore[union-attr]
    joined = DimensionTables(data).join({"item": rows})  # type: ignore[dict-item]
    assert joined["year"].tolist() == [2002.0, 1999.0, 0.0, 0.0]  # type: ignore[union-attr]


def test_an_op_on_columns_of_a_table_and_of_the_row(here: Path, workspace: Workspace) -> None:
    mixed = {"op": "LambdaOp", "expression": "if(is_null(year), price, year)", "output": "mixed", "dtype": "float64"}
    encoder = encoder_of(
        prepared(workspace, JOIN, KEYS, {"op": "Categorify", "columns": ["genres"]}, mixed, drop=["year"])
    )
    rows = {"user": ["8"] * 4, "item": [40, 10, 20, None], "price": [1.5] * 4}
    assert as_rows(encoder.arrays(rows))["mixed"] == [2002.0, 1999.0, 1.5, 1.5]


def test_ops_before_the_split_compute_and_those_that_drop_rows_are_skipped(here: Path, workspace: Workspace) -> None:
    ops = (
        {"op": "LambdaOp", "expression": "price * 2", "output": "double", "dtype": "float32"},
        {"op": "Rename", "columns": {"user": "who"}},
        {"op": "Filter", "expression": "rating >= 1"},
        {"op": "KCore", "columns": {"item": 1}},
        {"op": "Categorify", "columns": ["who", "item"]},
    )
    encoder = encoder_of(prepared(workspace, *ops, user="who"))
    assert set(encoder.inputs) == {"user", "item", "price"}
    assert as_rows(encoder.arrays(ONE | {"price": [1.5]})) == {"who": [4], "item": [4], "double": [3.0]}


def test_columns_from_other_rows_are_brought(here: Path, workspace: Workspace) -> None:
    lag = {"op": "DifferenceLag", "columns": "time", "by": "user", "order_by": "time"}
    norm = {"op": "FillMissing", "columns": ["time_difference_lag_1"], "fill_val": -1}
    encoder = encoder_of(prepared(workspace, lag, KEYS, norm))
    assert encoder.brought == {"time_difference_lag_1": "DifferenceLag"}
    assert set(encoder.inputs) == {"user", "item", "time_difference_lag_1"}
    with pytest.raises(
        DataError, match=r"no column time_difference_lag_1 \(DifferenceLag computes it from other rows\)"
    ):
        encoder.encode(ONE)
    assert as_rows(encoder.arrays(ONE | {"time_difference_lag_1": [7]}))["time_difference_lag_1"] == [7.0]


def test_sessions_are_brought_as_lists(here: Path, workspace: Workspace) -> None:
    session = {
        "op": "Groupby",
        "by": "user",
        "order_by": "time",
        "aggs": {"item": ["list", "last"], "time": "last", "rating": "last"},
    }
    keys = {"op": "Categorify", "columns": ["item_last", "item_list"], "joint": True}
    label = {"op": "LambdaOp", "expression": "rating_last > 3", "output": "liked", "dtype": "int8"}
    users = {"op": "Categorify", "columns": ["user"]}
    features = {"item": "item_last", "label": "liked", "timestamp": "time_last", "ops": [session, users, keys, label]}
    data = prepared(workspace, drop=["rating_last"], **features)
    encoder = encoder_of(data)
    assert encoder.inputs == {"user": pa.string(), "item_last": pa.int32(), "item_list": pa.list_(pa.int32())}
    assert encoder.brought == dict.fromkeys(("item_last", "item_list", "user"), "Groupby")
    encoded = as_rows(encoder.arrays({"user": ["8"], "item_last": [10], "item_list": [[20, 10, 99]]}))
    assert encoded == {"user": [4], "item_last": [3], "item_list": [[4, 3, 2]]}
    last = encoder_of(data, only=["item_last"])
    assert list(last.inputs) == ["item_last"]
    assert last.encode({"item_last": [20]})["item_last"].tolist() == [4]  # type: ignore[union-attr]


def test_some_columns_only(here: Path, workspace: Workspace) -> None:
    data = prepared(workspace, JOIN, KEYS, {"op": "Categorify", "columns": ["genres", "tags"]}, drop=["year"])
    encoder = encoder_of(data, only=["item"])
    assert list(encoder.inputs) == ["item"]
    assert set(encoder.encode({"item": [40]})) == {"item", row_column("item")}
    with pytest.raises(ConfigError, match="no feature genres in the interactions"):
        encoder_of(data, only=["genres"])


def test_memory_mapped_vocabularies_replace_built_ones(here: Path, workspace: Workspace) -> None:
    data = prepared(workspace, KEYS)
    fitted = FittedPlan.read(data.folder)
    indexes = {}
    for name, table in fitted.vocabularies.items():
        write_index(VocabularyIndex.build(table.column("value")), here / name)
        indexes[name] = open_index(here / name)
    without = {key: table.slice(0, 0) for key, table in fitted.state.items()}
    mapped = RowEncoder(FittedPlan(fitted.plan, fitted.inputs, without), data.schema, indexes=indexes)
    assert as_rows(mapped.arrays(ONE)) == as_rows(encoder_of(data).arrays(ONE)) == {"user": [4], "item": [4]}


def test_no_row_and_many_rows(here: Path, workspace: Workspace) -> None:
    encoder = encoder_of(prepared(workspace, KEYS, {"op": "Categorify", "columns": ["tags"]}))
    none = encoder.encode({"user": [], "item": np.array([], np.int64), "tags": []})
    assert none["user"].shape == (0,)  # type: ignore[union-attr]
    assert none["tags"].offsets.tolist() == [0]  # type: ignore[union-attr]
    rows = {"user": ["8", None, "no"] * 100, "item": np.array([10, 20, 99] * 100), "tags": [["q"], [], None] * 100}
    assert as_rows(encoder.arrays(rows))["item"] == [3, 4, 2] * 100


def test_a_request_of_json(here: Path, workspace: Workspace) -> None:
    encoder = encoder_of(prepared(workspace, KEYS, {"op": "Normalize", "columns": ["price"]}))
    request = json.loads('{"user": ["007", null], "item": ["20", 30.0], "price": [3, null]}')
    encoded = as_rows(encoder.arrays(request))
    assert (encoded["user"], encoded["item"]) == ([3, 1], [4, 5])
    assert repr(encoded["price"][1]) == "nan"


class Half(Op):
    """An op of another package."""

    def numpy(self, state: object, types: object) -> Any:
        return mapped({"price": lambda values: values.with_data(values.data / 2)})


def test_an_op_of_another_package() -> None:
    columns = {"price": Values(np.array([3.0]))}
    Half(op="x").numpy({}, {})(columns, 1)
    assert columns["price"].data.tolist() == [1.5]
    with pytest.raises(ConfigError, match=r"the op .*:Half \(numpy\) failed: KeyError: 'price'"):
        Half(op="x").numpy({}, {})({}, 1)


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (DifferenceLag(columns="time", by="user"), "DifferenceLag reads other rows; bring its output columns"),
        (Groupby(by="user", aggs={"item": "list"}), "Groupby reads other rows; bring its output columns"),
        (Filter(expression="rating > 3"), "Filter only drops rows, so single rows skip it"),
        (NegativeSampling(user="user", item="item", num_negatives=1), "NegativeSampling samples rows of a data set"),
        (AddTags(columns="item", tags=("x",)), "AddTags only describes columns"),
        (
            JoinExternal(table="t", on="item", columns=("x",)),
            "JoinExternal joins a table; the tables by id have its columns",
        ),
    ],
)
def test_refusals(op: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        compile_nodes([Node(op, 0, {})], None, {}, {})  # type: ignore[arg-type]
    assert LambdaOp(expression="1", output="x").refusal_for_rows() is None
