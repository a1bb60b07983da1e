"""Selection of the best epoch in hard cases: undefined or infinite metrics, cold-start users."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recsys_cli.batch import Batch
from recsys_cli.config import EvaluateConfig, RunConfig
from recsys_cli.errors import TrainingError
from recsys_cli.evaluation import Evaluation
from recsys_cli.events import Event, Message
from recsys_cli.loader.tables import DimensionTables
from recsys_cli.models.ranking.layers import numbers, numeric_columns
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.train import train, train_on
from recsys_cli.workspace import PreparedData, Workspace
from tests import checkerboard
from tests.ranks import on_ranks
from tests.rated import FEATURES

QUICK = {"device": "cpu", "precision": "fp32", "trackers": []}
SASREC = {"name": "sasrec", "embedding_dim": 8, "max_seq_len": 10, "dropout": 0.0, "num_layers": 1}


def a_config(model: dict[str, Any], **train: Any) -> RunConfig:
    return checkerboard.a_config(model, **{"epochs": 3, "batch_size": 8, "learning_rate": 0.01, **QUICK, **train})


# -- figures that are not defined -------------------------------------------------------------------------------------


def test_a_monitor_that_is_never_defined_keeps_the_last_epoch_and_says_so(make_prepared, workspace):
    """A model trained on users has no loss of rows."""
    told: list[Event] = []
    config = a_config(SASREC, monitor="loss", early_stopping=1)
    run = train_on(make_prepared(), config, workspace, emit=told.append).artifact
    assert [record["valid"]["loss"] for record in run.manifest["history"]] == [None] * 3
    assert (run.manifest["best_epoch"], run.manifest["epochs"]) == (3, 3)
    (note,) = run.manifest["notes"]
    assert note.startswith("train.monitor=loss was not defined in any epoch, so the last epoch is kept; ")
    assert "ndcg@10" in note
    warnings = [event.text for event in told if isinstance(event, Message) and event.level == "warning"]
    assert any("keeps the last epoch; select the best one with train.monitor=ndcg@10" in text for text in warnings)


@pytest.mark.parametrize(
    ("options", "last"),
    [({"monitor": "loss"}, True), ({"monitor": "loss", "early_stopping": 3}, True), ({"learning_rate": 1e-9}, False)],
)
def test_a_best_epoch_that_is_the_last_is_told(make_prepared, workspace, options, last):
    """The checkerboard improves in each epoch; without learning, the first epoch is the best."""
    model = {"name": "mlp", "embedding_dim": 8, "hidden_dims": [16], "dropout": 0.0, "embedding_dropout": 0.0}
    config = a_config(model, **{"batch_size": 256, "learning_rate": 0.003, "monitor": "ndcg@10", **options})
    run = train_on(make_prepared(), config, workspace).artifact
    assert (run.manifest["best_epoch"] == 3) == last
    expected = "the best epoch is the last of 3: more may be better, such as train.epochs=6"
    if "early_stopping" not in options:
        expected += " train.early_stopping=2"
    assert run.manifest["notes"] == ([expected] if last else [])


# -- columns that are no numbers --------------------------------------------------------------------------------------


def aged(broken: str | None) -> RunConfig:
    """Rows of train and valid with the user's age, and one null."""
    rng = np.random.default_rng(0)
    for split, number in (("train", 400), ("valid", 100)):
        rows = [
            [f"u{rng.integers(20)}", f"i{rng.integers(15)}", str(rng.integers(18, 80)), str(rng.integers(2))]
            for _ in range(number)
        ]
        if split == broken:
            rows[number // 2][2] = ""
        Path(f"{split}.csv").write_text("\n".join(["user,item,age,label", *map(",".join, rows)]) + "\n")
    return RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "train.csv"},
        "split": {"method": "files", "train": "train.csv", "valid": "valid.csv"},
        "features": {"user": "user", "item": "item", "label": "label", "ops": [
            {"op": "Categorify", "columns": ["user", "item"]}, {"op": "Normalize", "columns": ["age"]},
        ]},
        "etl": {"engine": "polars"},
        "model": {"name": "mlp", "embedding_dim": 4, "hidden_dims": [4]},
        "train": {"epochs": 2, "batch_size": 64, **QUICK},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "what"), [("train", "the loss is not a finite number at step"), ("valid", "a score of the valid split")]
)
def test_a_column_that_is_not_finite_is_named(workspace, tmp_path, monkeypatch, broken, what):
    monkeypatch.chdir(tmp_path)
    config = aged(broken)
    etl(config, workspace)
    with pytest.raises(TrainingError, match=what) as caught:
        train(config, workspace)
    assert f"age of {broken} has nulls or infinite numbers" in caught.value.message
    assert "put FillMissing or FillMedian for age into features.ops" in str(caught.value.hint)
    assert not any(run.exists for run in workspace.runs())


def train_there(data: PreparedData, config: RunConfig, root: Path) -> None:
    train_on(data, config, Workspace(root))


@pytest.mark.parametrize("broken", ["train", "valid"])
def test_every_process_names_the_column_wherever_the_row_is(workspace, tmp_path, monkeypatch, broken):
    monkeypatch.chdir(tmp_path)
    config = aged(broken)
    data = etl(config, workspace).artifact
    for error in on_ranks(2, train_there, data, config, workspace.root.absolute()):
        assert f"age of {broken} has nulls or infinite numbers" in error


@pytest.mark.parametrize("model", ["two-tower", "fm", "sasrec"])
def test_a_number_that_a_table_row_lacks_is_the_mean(workspace, tmp_path, monkeypatch, model):
    """Valid has an item outside the table, a cold one without the number, and train a usual one without it."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(3)
    for split, items in (("train", 20), ("valid", 24), ("test", 24)):
        pairs = [(user, item) for user in range(30) for item in draw.choice(items, 8, replace=False)]
        lines = [f"{user},{item},{number % 2},{number}" for number, (user, item) in enumerate(pairs)]
        Path(f"{split}.csv").write_text("\n".join(["user,item,label,time", *lines]) + "\n")
    years = [f"{item},{'' if item in {7, 21} else 1950 + item}" for item in range(22)]
    Path("films.csv").write_text("\n".join(["item,year", *years]) + "\n")
    config = RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "train.csv", "tables": {"films": "films.csv"}},
        "split": {"method": "files", "train": "train.csv", "valid": "valid.csv", "test": "test.csv"},
        "features": {"user": "user", "item": "item", "label": "label", "timestamp": "time", "ops": [
            {"op": "JoinExternal", "table": "films", "on": "item", "columns": ["year"]},
            {"op": "Categorify", "columns": ["user", "item"]}, {"op": "Normalize", "columns": ["year"]},
        ]},
        "etl": {"engine": "polars"},
        "model": {"name": model},
        "train": {"epochs": 1, "batch_size": 64, **QUICK},
        "evaluate": {"k": [5], "bootstrap": 20},
    })  # fmt: skip
    data = etl(config, workspace).artifact
    run = train(config, workspace).artifact
    assert evaluate(run, workspace).artifact.exists
    item = data.schema["item"]
    numeric = numeric_columns(data.schema.features)
    table = DimensionTables(data).features({"item": torch.arange(int(item.cardinality or 0))})
    assert table["year"].isnan().any()
    assert torch.equal(numbers(Batch(table, {}), numeric)[:, 0], table["year"].nan_to_num(0.0))


# -- users whom train does not know -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [SASREC, {"name": "ease"}], ids=lambda model: model["name"])
def test_after_a_split_by_user_models_that_fold_in_are_monitored_as_they_are_evaluated(
    workspace, tmp_path, monkeypatch, model
):
    """All users walk around a circle of items, so the next item generalizes to all users."""
    monkeypatch.chdir(tmp_path)
    rows = [f"u{user},i{(user * 7 + step) % 30},5,{step}" for user in range(120) for step in range(12)]
    Path("ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *rows]) + "\n")
    config = RunConfig.model_validate({
        "dataset": {"name": "files", "interactions": "ratings.csv"},
        "split": {"method": "user", "valid": 0.2, "test": 0.2},
        "features": {**FEATURES, "timestamp": "timestamp"},
        "etl": {"engine": "polars"},
        "model": model,
        "train": {"epochs": 4, "batch_size": 8, "learning_rate": 0.01, "monitor": "ndcg@5", **QUICK},
    })  # fmt: skip
    etl(config, workspace)
    run = train(config, workspace).artifact
    found = [record["valid"]["ndcg@5"] for record in run.manifest["history"]]
    evaluate(run, workspace, config=EvaluateConfig(split="valid", k=(5,), bootstrap=10))
    evaluated = Evaluation.read(run.evaluation).ranking["model"]["ndcg@5"].value
    assert run.manifest["valid"]["ndcg@5"] == pytest.approx(evaluated)
    assert run.manifest["valid"]["ndcg@5"] == max(found) > 0.3
    if model is SASREC:
        assert found[-1] > found[0]  # it goes on learning from the histories of train after each look
