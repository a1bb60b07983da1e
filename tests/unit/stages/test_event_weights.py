"""Event names to weights and to several labels, by the expressions of docs/events.md, on each engine."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from recsys_cli.batch import Batch
from recsys_cli.config import RunConfig
from recsys_cli.evaluation import Evaluation
from recsys_cli.events import Message
from recsys_cli.features.schema import Role
from recsys_cli.metrics.labels import AUC
from recsys_cli.models import build
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train
from tests.engines import every_engine

DOCS = Path(__file__).parents[3] / "docs" / "events.md"
EVENTS = {"view": (1, 0, 0), "cart": (3, 0, 1), "purchase": (5, 1, 0), "rate": (0, 0, 0)}
"""Weight, purchase and cart of each event."""
LABELS = {"purchase": "event == 'purchase'", "cart": "event == 'cart' or event == 'purchase'"}


@every_engine
def test_events_have_weights_and_labels(name, tmp_path, monkeypatch, workspace):
    monkeypatch.chdir(tmp_path)
    rows = [f"{row % 3},{row},{event}" for row, event in enumerate([*EVENTS] * 10)]
    Path("log.csv").write_text("\n".join(["user_id,item_id,event", *rows]) + "\n")
    section = DOCS.read_text().partition("## Several events")[2].partition("```yaml\n")[2].partition("```")[0]
    features = yaml.safe_load(section)["features"]

    data = etl(
        RunConfig.model_validate({
            "dataset": {"name": "files", "interactions": "log.csv"},
            "features": features,
            "etl": {"engine": name},
        }),
        workspace,
    ).artifact  # fmt: skip

    table = pa.concat_tables([pq.read_table(path) for path in data.shards("train")])
    items = pq.read_table(data.vocabulary("item_id"))["value"].to_pylist()
    for row in table.to_pylist():
        event = [*EVENTS][items[row["item_id"] - 3] % len(EVENTS)]
        assert (row["weight"], row["purchase"], row["cart"]) == EVENTS[event]
    assert [column.name for column in data.schema.labels] == ["purchase", "cart"]
    assert data.schema["weight"].role is Role.WEIGHT

    model = build("logistic", {}, data.schema)
    ids = {name: torch.tensor([3, 4]) for name in ("user_id", "item_id")}
    labels = {name: torch.tensor([1.0, 0.0]) for name in ("purchase", "cart")}
    loss = [model.loss(Batch(ids, labels, torch.tensor(weight))).item() for weight in ([5.0, 0.0], [1.0, 0.0])]
    assert loss[0] == pytest.approx(5 * loss[1])


def test_only_a_model_that_counts_pairs_says_that_weights_have_no_effect(tmp_path, monkeypatch, workspace):
    monkeypatch.chdir(tmp_path)
    rows = [f"{row % 7},{row % 5},{row % 3}" for row in range(100)]
    Path("orders.csv").write_text("\n".join(["user_id,item_id,quantity", *rows]) + "\n")

    def said(model):
        config = RunConfig.model_validate({
            "dataset": {"name": "files", "interactions": "orders.csv"},
            "features": {
                "user": "user_id", "item": "item_id", "label": "label", "weight": "quantity",
                "ops": [
                    {"op": "Categorify", "columns": ["user_id", "item_id"]},
                    {"op": "LambdaOp", "expression": "1", "output": "label", "dtype": "int8"},
                ],
            },
            "model": {"name": model},
        })  # fmt: skip
        etl(config, workspace)
        events = []
        train(config, workspace, emit=events.append)
        return [event.text for event in events if isinstance(event, Message) and "weight" in event.text]

    assert said("popularity") == said("ials") == []
    what = (
        "features.weight has no effect on {}, which counts a pair of user and item once, unless its rows have weight 0"
    )
    assert [said("ease"), said("item-knn")] == [[what.format("ease")], [what.format("item-knn")]]


def test_frequent_labels_help_to_predict_a_rare_one(tmp_path, monkeypatch, workspace):
    """Users put items of their group into the cart, and buy a tenth of these; the group is in no column."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, 100, 6_000), rng.integers(0, 60, 6_000)
    cart = rng.random(6_000) < np.where(user % 4 == item % 4, 0.8, 0.05)
    events = np.where(cart, np.where(rng.random(6_000) < 0.1, "purchase", "cart"), "view")
    pq.write_table(pa.table({"user_id": user, "item_id": item, "event": events}), "log.parquet")

    matched = AUC.of_rows(events == "purchase", (user % 4 == item % 4).astype(float))

    def auc(*labels):
        ops = [{"op": "LambdaOp", "expression": LABELS[name], "output": name, "dtype": "int8"} for name in labels]
        config = RunConfig.model_validate({
            "dataset": {"name": "files", "interactions": "log.parquet"},
            "split": {"method": "random", "valid": 0.1, "test": 0.4},
            "features": {
                "user": "user_id", "item": "item_id", "label": list(labels),
                "ops": [{"op": "Categorify", "columns": ["user_id", "item_id"]}, *ops],
            },
            "model": {"name": "mlp"},
            "train": {"device": "cpu", "epochs": 20, "batch_size": 256},
            "evaluate": {"bootstrap": 20},
        })  # fmt: skip
        data = etl(config, workspace).artifact
        assert {column.name for column in data.schema.features} == {
            "user_id",
            "item_id",
        }  # a cart would tell the purchase
        run = train(config, workspace).artifact
        evaluate(run, workspace)
        return Evaluation.read(run.evaluation).metrics["auc"].value or 0.0

    alone, together = auc("purchase"), auc("purchase", "cart")

    assert alone + 0.1 < together
    assert 0.7 < together < matched + 0.02
