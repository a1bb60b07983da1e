"""Vectors of a joined table as features: cold items are ranked by content."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from recsys_cli.batch import Batch, Ragged
from recsys_cli.config import RunConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation import Evaluation
from recsys_cli.features.schema import Column, Kind, Role, Schema
from recsys_cli.models import build
from recsys_cli.models.collaborative.rows import Categories, Elements
from recsys_cli.models.ranking.layers import numbers, numeric_columns
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.export import export
from recsys_cli.stages.train import train
from recsys_cli.workspace import Workspace
from tests.engines import every_engine

ITEMS, OLD, USERS, WIDTH = 240, 160, 40, 4
OPS: list[dict[str, Any]] = [
    {"op": "JoinExternal", "table": "items", "on": "item", "columns": ["vector"]},
    {"op": "Categorify", "columns": ["user", "item"]},
]
COUNT = {"op": "ValueCount", "columns": ["vector"]}


def config(model: str, ops: list[dict[str, Any]], **etl: Any) -> RunConfig:
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "train.parquet", "tables": {"items": "items.parquet"}},
        "split": {"method": "files", "train": "train.parquet", "test": "test.parquet"},
        "features": {"user": "user", "item": "item", "label": "label", "ops": ops},
        "etl": etl,
        "model": {"name": model},
        "train": {"device": "cpu", "epochs": 8, "batch_size": 128, "learning_rate": 0.01},
        "evaluate": {"bootstrap": 20},
    })  # fmt: skip


def reading(chosen: RunConfig, items: object) -> RunConfig:
    """Take the items from other files."""
    return chosen.model_copy(update={"dataset": chosen.dataset.model_copy(update={"tables": {"items": items}})})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Odd users like items whose first element is positive, even users the others; all items of test are cold."""
    folder = tmp_path_factory.mktemp("vectors")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(ITEMS, WIDTH)).astype(np.float32)
    vectors[:, 0] = np.abs(vectors[:, 0]) * np.tile([1, -1], ITEMS // 2)  # half of the cold items are liked
    for name, low, high in (("train", 0, OLD), ("test", OLD, ITEMS)):
        user, item = (grid.ravel() for grid in np.meshgrid(np.arange(USERS), np.arange(low, high)))
        label = ((vectors[item, 0] > 0) == (user % 2 == 1)).astype(np.int8)
        order = rng.permutation(len(user))[:3_000]
        pq.write_table(pa.table({"user": user, "item": item, "label": label}).take(order), folder / f"{name}.parquet")
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH)
    pq.write_table(pa.table({"item": np.arange(ITEMS), "vector": fixed}), folder / "items.parquet")
    return folder, vectors


@pytest.fixture
def vectors(world, monkeypatch):
    monkeypatch.chdir(world[0])
    return world[1]


@pytest.fixture
def workspace(vectors):
    """One workspace for all tests, beside the files: what is prepared already is found."""
    return Workspace(Path("workspace"))


def auc(workspace: Workspace, chosen: RunConfig) -> float:
    etl(chosen, workspace)
    run = train(chosen, workspace).artifact
    evaluate(run, workspace)
    if any(op.name == "ValueCount" for op in chosen.features.ops):
        assert export(run, workspace).verified == 1_000
    found = Evaluation.read(run.evaluation).metrics["auc"].value
    assert found is not None
    return found


@pytest.mark.parametrize("model", ["fm", "dlrm", "two-tower"])
def test_cold_items_are_ranked_by_their_vectors(vectors, workspace, model):
    assert auc(workspace, config(model, [*OPS, COUNT])) > 0.9
    if model == "fm":
        assert 0.45 < auc(workspace, config(model, OPS[1:])) < 0.55


def test_arrays_are_read_as_the_same_vectors(vectors, workspace):
    lists = etl(config("fm", [*OPS, COUNT]), workspace).artifact
    np.save("ids.npy", np.arange(ITEMS))
    np.save("vectors.npy", np.asfortranarray(vectors))
    items = {"files": ["ids.npy", "vectors.npy"], "names": ["item", "vector"]}

    arrays = etl(reading(config("fm", [*OPS, COUNT]), items), workspace).artifact

    assert arrays.folder != lists.folder
    assert pq.read_table(arrays.table("item")).equals(pq.read_table(lists.table("item")))
    assert arrays.schema == lists.schema


@every_engine
def test_table_holds_the_vectors_on_each_engine(vectors, workspace, name):
    lists = pa.array([None, *vectors[1:].tolist()], pa.list_(pa.float64()))
    pq.write_table(pa.table({"item": np.arange(ITEMS), "vector": lists}), "nulls.parquet")

    data = etl(reading(config("fm", [*OPS, COUNT], engine=name), "nulls.parquet"), workspace, force=True).artifact

    column = data.schema["vector"]
    assert (column.kind, column.ragged, column.table, column.lengths) == (Kind.NUMERIC, True, "item", (0, WIDTH))
    rows = pq.read_table(data.table("item"))["vector"].to_pylist()
    ids = pq.read_table(data.vocabulary("item"))["value"].to_pylist()
    ids += pq.read_table(data.cold_keys("item"))["value"].to_pylist()
    assert sorted(ids) == list(range(ITEMS))
    for row, item in zip(rows[3:], ids, strict=True):
        assert (row or []) == (vectors[item].tolist() if item else [])


def test_vectors_without_a_recorded_length_are_an_error(vectors, workspace):
    data = etl(config("fm", OPS), workspace).artifact

    with pytest.raises(ConfigError, match="does not support lists of numbers: vector") as error:
        build("fm", {}, data.schema)
    assert "{op: ValueCount, columns: [vector]}" in str(error.value.hint)


def test_missing_vector_is_zero():
    pytest.importorskip("lightgbm")
    from recsys_cli.models.ranking.lightgbm import Plain

    vector = Column(name="v", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32", ragged=True, lengths=(0, 2))
    price = Column(name="a", role=Role.FEATURE, kind=Kind.NUMERIC, dtype="float32")
    lists = Ragged(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([0, 2, 2, 4]))
    batch = Batch({"v": lists, "a": torch.tensor([7.0, 8.0, 9.0])}, {})

    columns = numeric_columns([vector, price])

    assert len(columns) == 3
    assert numbers(batch, columns).tolist() == [[7, 1, 2], [8, 0, 0], [9, 3, 4]]
    categories = Categories(Schema(columns=(price, vector)), 10)
    trees = Plain(Schema(columns=(price, vector)), categories).columns(batch, Elements.of(batch, categories))
    assert trees.tolist() == [[7, 1, 2], [8, 0, 0], [9, 3, 4]]
