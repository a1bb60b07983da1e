"""No skill on noise: random interactions with sampled negatives, through every stage."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys_cli.config import RunConfig
from recsys_cli.evaluation import Evaluation
from recsys_cli.metrics.labels import AUC
from recsys_cli.stages.download import download
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train
from recsys_cli.workspace import PreparedData

USERS, ITEMS, EACH = 400, 60, 24


@pytest.fixture
def config(tmp_path):
    """Users with 24 of 60 items at random, and four negatives per interaction."""
    rng = np.random.default_rng(7)
    items = np.argsort(rng.random((USERS, ITEMS)), axis=1)[:, :EACH].ravel()
    users = np.repeat(np.arange(USERS), EACH)
    order = rng.permutation(len(users))
    pq.write_table(pa.table({"user": users[order], "item": items[order]}), tmp_path / "noise.parquet")
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": str(tmp_path / "noise.parquet")},
        "split": {"method": "random", "valid": 0.1, "test": 0.1},
        "features": {
            "user": "user", "item": "item", "label": "label",
            "ops": [
                {"op": "NegativeSampling", "user": "user", "item": "item", "num_negatives": 4},
                {"op": "LambdaOp", "expression": "sampled == 0", "output": "label", "dtype": "int8"},
                {"op": "Categorify", "columns": ["user", "item"]},
            ],
        },
        "model": {"name": "fm", "regularization": 0.0},
        "train": {"epochs": 10, "device": "cpu", "precision": "fp32"},
        "evaluate": {"k": [10], "bootstrap": 20},
    })  # fmt: skip


def rows(data: PreparedData, split: str) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in data.shards(split)])


def keys(table: pa.Table) -> np.ndarray:
    return table["user"].to_numpy().astype(np.int64) * 1_000 + table["item"].to_numpy()


def three_errors(labels: np.ndarray) -> float:
    """Three standard errors of the AUC of random scores."""
    positive = int(labels.sum())
    negative = len(labels) - positive
    return 3 * ((len(labels) + 1) / (12 * positive * negative)) ** 0.5


def test_no_model_finds_anything_in_noise(config, workspace):
    download(config.dataset, workspace)
    data = etl(config, workspace).artifact
    run = train(config, workspace).artifact
    evaluate(run, workspace)
    found = Evaluation.read(run.evaluation)
    of_train, of_test = rows(data, "train"), rows(data, "test")
    labels = of_test["label"].to_numpy()
    never_sampled = ~np.isin(keys(of_test), keys(of_train.filter(pa.array(of_train["label"].to_numpy() == 0))))

    assert found.split == "test"
    assert AUC.of_rows(labels, never_sampled.astype(float)) == pytest.approx(0.5, abs=three_errors(labels))
    assert found.pointwise["model"]["auc"].value == pytest.approx(0.5, abs=three_errors(labels))
    model, popularity = (found.ranking[name]["ndcg@10"] for name in ("model", "popularity"))
    assert model.value == pytest.approx(popularity.value, abs=0.05)
