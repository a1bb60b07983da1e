"""A numeric label from raw rows to a comparison: planted effects of users and items, with known noise."""

import json
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error

from recsys_cli.config import RunConfig
from recsys_cli.config.load import load
from recsys_cli.errors import ConfigError, DataError
from recsys_cli.evaluation import Evaluation
from recsys_cli.evaluation.loaded_run import model_of
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.loader import Loader, scales
from recsys_cli.models import build
from recsys_cli.stages.compare import compare
from recsys_cli.stages.etl import etl
from recsys_cli.stages.evaluate import evaluate
from recsys_cli.stages.inspect import inspect_user
from recsys_cli.stages.train import train, train_on
from recsys_cli.workspace import PreparedData, TrainedRun, Workspace
from tests.ranks import on_ranks

USERS, ITEMS, NOISE = 60, 40, 10.0
MEAN = 300.0
CONFIG = """\
dataset: {name: files, interactions: watched.csv}
split: {method: random, valid: 0.1, test: 0.2}
features:
  user: user
  item: item
  label: LABEL
  ops:
    - {op: Categorify, columns: [user, item]}
LONG
etl: {engine: polars}
model: MODEL
train: {epochs: 8, batch_size: 64, learning_rate: 0.03, device: cpu, precision: fp32, trackers: []}
evaluate: {k: [5], bootstrap: 100, batch_size: 500}
"""
NUMBER = "{name: seconds, task: regression}"
LONG = "{op: LambdaOp, expression: seconds > 300, output: long, dtype: int8}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Each user has 80 % of the items; seconds are 300 + user + item + noise, with deviations 40, 30 and 10."""
    made, rng = tmp_path_factory.mktemp("regression"), np.random.default_rng(0)
    users, items = rng.normal(0, 40, USERS), rng.normal(0, 30, ITEMS)
    rows = [(user, item) for user in range(USERS) for item in range(ITEMS) if rng.random() < 0.8]
    lines = [f"{u},i{i},{MEAN + users[u] + items[i] + rng.normal(0, NOISE):.4f}" for u, i in rows]
    (made / "watched.csv").write_text("\n".join(["user,item,seconds", *lines]) + "\n")
    return made


def config_of(folder: Path, model: str, *overrides: str, label: str = NUMBER) -> RunConfig:
    parts = {"MODEL": model, "LABEL": label, "LONG": f"    - {LONG}" if "long" in label else ""}
    (folder / "config.yaml").write_text(reduce(lambda text, part: text.replace(*part), parts.items(), CONFIG))
    return load(folder / "config.yaml", [f"dataset.interactions={folder / 'watched.csv'}", *overrides])


def run_of(folder: Path, model: str, *overrides: str, label: str = NUMBER) -> TrainedRun:
    workspace, config = Workspace(folder / "workspace"), config_of(folder, model, *overrides, label=label)
    etl(config, workspace)
    run = train(config, workspace).artifact
    return evaluate(run, workspace).artifact


@pytest.fixture(scope="module")
def logistic(folder):
    return run_of(folder, "{name: logistic}")


@pytest.fixture(scope="module")
def worse(folder):
    return run_of(folder, "{name: logistic}", "train.epochs=1", "train.learning_rate=0.001")


def rows_of(run: TrainedRun, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels of the test rows."""
    kept = Rankings.read(run.rankings)
    return kept.logits, kept.labels


def test_a_sum_is_learnt_to_its_noise_and_measured_in_its_units(logistic, folder):
    found = Evaluation.read(logistic.evaluation)
    predicted, told = rows_of(logistic, folder)

    figures = {name: estimate.value for name, estimate in found.pointwise["model"].items()}
    assert figures == {
        "rmse": pytest.approx(mean_squared_error(told, predicted) ** 0.5, rel=1e-6),
        "mae": pytest.approx(mean_absolute_error(told, predicted), rel=1e-6),
    }
    assert NOISE * 0.95 < figures["rmse"] < NOISE * 1.15
    assert found.label_mean == pytest.approx(MEAN, abs=20)
    assert told.dtype == np.float32
    assert 100 < told.min() < told.max() < 500


def test_baselines_are_the_mean_and_what_users_and_items_add(logistic, folder):
    found = Evaluation.read(logistic.evaluation)
    _, told = rows_of(logistic, folder)

    assert list(found.pointwise) == ["model", "user and item mean", "constant"]
    assert found.label_mean is not None
    constant = found.pointwise["constant"]["rmse"]
    assert constant.value == pytest.approx(np.sqrt(np.mean((told - found.label_mean) ** 2)), rel=1e-5)
    assert constant.low < constant.value < constant.high
    assert NOISE * 0.95 < found.pointwise["user and item mean"]["rmse"].value < NOISE * 1.25
    assert set(found.ranking) == {"model", "popularity", "ease"}
    assert all(list(cohort.pointwise["model"]) == ["rmse"] for cohort in found.cohorts)
    assert "above" in found.protocol.relevant


def test_there_are_no_curves_of_probabilities(logistic):
    found = Evaluation.read(logistic.evaluation)
    page = logistic.report.read_text(encoding="utf-8")

    assert found.reliability.x == ()
    assert "RMSE" in page
    for absent in ("AUC", "log loss", "ROC", "Reliability", "calibration", "with label 1", "probab"):
        assert absent not in page.partition("<details><summary>config.yaml")[0], absent


def test_training_goes_by_the_error_in_the_labels_units(logistic, folder):
    told = [json.loads(line) for line in logistic.metrics.read_text().splitlines()]
    valid = [line["valid"] for line in told if line.get("event") == "epoch"]

    assert set(valid[-1]) == {"loss", "rmse"}
    data = Workspace(folder / "workspace").data_of(logistic)
    deviation = scales(data)["seconds"].deviation
    assert valid[-1]["loss"] == pytest.approx((valid[-1]["rmse"] / deviation) ** 2 / 8, rel=1e-4)
    assert logistic.manifest["monitor"] == "rmse"


def train_here(data: PreparedData, config: RunConfig, root: Path) -> None:
    """Train in this process, possibly one of several."""
    train_on(data, config, Workspace(root))


def test_processes_measure_what_one_measures(folder, tmp_path):
    """Each rank has a part of the rows; the scale covers all."""
    config = config_of(folder, "{name: fm, embedding_dim: 4}", "train.epochs=2")
    data = etl(config, Workspace(folder / "workspace")).artifact
    alone = train_on(data, config, Workspace(tmp_path / "one")).artifact
    assert on_ranks(2, train_here, data, config, tmp_path / "two") == [None, None]
    (together,) = Workspace(tmp_path / "two").runs()

    def errors(run):
        return [record["valid"]["rmse"] for record in run.manifest["history"]]

    assert errors(together) == pytest.approx(errors(alone), rel=1e-4)


def test_the_scale_is_part_of_the_run(logistic, folder):
    workspace = Workspace(folder / "workspace")
    data = workspace.data_of(logistic)
    read = model_of(logistic, config_of(folder, "{name: logistic}"), data)

    train_rows = np.concatenate([batch.labels["seconds"].numpy() for batch in Loader(data, "train", batch_size=100)])
    assert read.label_mean.tolist() == pytest.approx([train_rows.mean(dtype=np.float64)], rel=1e-6)
    assert read.label_deviation.tolist() == pytest.approx([train_rows.std(dtype=np.float64)], rel=1e-6)
    scores = np.concatenate([read.score(batch).detach().numpy() for batch in Loader(data, "test", batch_size=100)])
    np.testing.assert_allclose(scores, rows_of(logistic, folder)[0], rtol=1e-5)


def test_compare_tests_errors_of_the_same_rows(logistic, worse, folder):
    found = compare([worse.folder.name, logistic.folder.name], Workspace(folder / "workspace"))

    figures = {figure.metric: figure for figure in found.figures}
    (label,) = found.others
    assert {"rmse", "mae"} <= set(figures)
    assert not {"auc", "log_loss"} & set(figures)
    rmse = [Evaluation.read(run.evaluation).pointwise["model"]["rmse"].value for run in (worse, logistic)]
    difference = figures["rmse"].differences[label]
    assert list(figures["rmse"].values.values()) == pytest.approx(rmse, rel=1e-6)
    assert difference.value == pytest.approx(rmse[1] - rmse[0], rel=1e-6)
    assert (difference.verdict, figures["rmse"].better) == ("better", "lower")


def test_inspect_shows_the_number(logistic, folder):
    found = inspect_user(logistic, Workspace(folder / "workspace"), "7", k=5)

    assert found["label"] == "seconds"
    assert found["mean"] == pytest.approx(MEAN, abs=20)
    assert all(100 < one["label"] < 500 for one in found["history"])
    assert all(100 < one["score"] < 500 for one in found["recommended"])
    assert 0 < found["positive"]["train"] < found["rows"]["train"]


@pytest.mark.parametrize(
    "model",
    [
        "{name: fm, embedding_dim: 4}",
        "{name: mlp, embedding_dim: 8, hidden_dims: [16]}",
        "{name: lightgbm, num_trees: 60, embedding_dim: 2, positions: 2, min_data_in_leaf: 5}",
    ],
)
def test_ranking_models_learn_numbers(model, folder):
    found = Evaluation.read(run_of(folder, model).evaluation).pointwise

    assert found["model"]["rmse"].value < 2 * NOISE < found["constant"]["rmse"].value / 2


def test_a_number_beside_a_label_of_0_and_1(folder):
    """Either label may be the main one for the metrics; the model learns both."""
    run = run_of(folder, "{name: logistic}", label=f"[long, {NUMBER}]")
    found = Evaluation.read(run.evaluation)
    assert found.pointwise["model"]["auc"].value > 0.9
    assert found.label_mean is None

    run = run_of(folder, "{name: logistic}", "train.label_smoothing=0.1", label=f"[{NUMBER}, long]")
    found = Evaluation.read(run.evaluation)
    assert found.pointwise["model"]["rmse"].value < 1.3 * NOISE
    data = Workspace(folder / "workspace").data_of(run)
    read = model_of(run, config_of(folder, "{name: logistic}"), data)
    batch = next(iter(Loader(data, "test", batch_size=500)))
    right = (read.logits(batch)[:, 1] > 0) == (batch.labels["long"] > 0.5)
    assert right.float().mean() > 0.85


def test_a_model_of_the_order_alone_has_no_errors(folder):
    found = Evaluation.read(run_of(folder, "{name: popularity}").evaluation)

    assert found.pointwise["model"] == {}
    assert found.pointwise["constant"]["rmse"].value > 0
    assert found.ranking["model"]["ndcg@5"].value == found.ranking["popularity"]["ndcg@5"].value


def test_a_number_says_from_where_on_rows_are_relevant(logistic, folder):
    workspace = Workspace(folder / "workspace")
    run = evaluate(
        logistic, workspace, config=config_of(folder, "{name: fm}", "evaluate.relevance=340").evaluate
    ).artifact
    try:
        found = Evaluation.read(run.evaluation)
        assert "at least 340" in found.protocol.relevant
        assert found.counts.relevant == np.count_nonzero(rows_of(run, folder)[1] >= 340)
    finally:
        evaluate(logistic, workspace)


def test_what_is_of_labels_of_0_and_1_is_refused(folder):
    for override, what in (
        ("train.positive_weight=2", r"train.positive_weight needs a binary label \(0 or 1\), but seconds is numeric"),
        ("train.label_smoothing=0.1", "train.label_smoothing needs a binary label"),
        ("features.label={name: seconds, task: regresion}", "regresion"),
    ):
        with pytest.raises(ConfigError, match=what):
            config_of(folder, "{name: fm}", override)
    with pytest.raises(ConfigError, match="auc is a metric of binary labels, but the label seconds is numeric"):
        run_of(folder, "{name: fm}", "train.monitor=auc")


@pytest.mark.parametrize("model", ["mf", "two-tower", "lightgcn"])
def test_retrieval_models_reject_a_regression_label_and_name_alternatives(model, folder):
    with pytest.raises(ConfigError, match=r"features.label: .* seconds is a regression label") as found:
        run_of(folder, f"{{name: {model}}}")
    assert 'expression: "seconds > ..."' in (found.value.hint or "")
    assert "model.name=fm, mlp, lightgbm" in (found.value.hint or "")


def test_what_is_gone_by_follows_from_the_label_unless_it_is_said(folder):
    bench = 'bench={"models": ["fm"]}'
    config = config_of(folder, "{name: fm}", bench, "evaluate.k=[10]")
    assert config.bench is not None
    assert (config.train.monitor, config.bench.metrics) == ("rmse", ("rmse", "mae", "ndcg@10"))
    assert config_of(folder, "{name: fm}", "train.monitor=mae").train.monitor == "mae"
    assert config_of(folder, "{name: ease}").train.monitor == "ndcg@10"
    config = config_of(folder, "{name: fm}", bench, "evaluate.k=[10]", label=f"[long, {NUMBER}]")
    assert config.bench is not None
    assert (config.train.monitor, config.bench.metrics[-1]) == ("log_loss", "auc")


def test_a_number_that_is_not_said_to_be_one_is_refused_and_the_error_says_how(folder):
    with pytest.raises(DataError, match="must be 0 or 1") as found:
        run_of(folder, "{name: fm}", label="seconds")
    assert "features.label: {name: seconds, task: regression}" in (found.value.hint or "")


def test_an_infinite_or_missing_number_is_refused(folder):
    with pytest.raises(DataError, match=r"ranges from .* to inf in train; it must be finite"):
        run_of(folder, "{name: fm}", *_ops("seconds / (seconds - seconds)"), label=NUMBER.replace("seconds", "made"))


def _ops(expression: str) -> list[str]:
    ops: list[dict[str, Any]] = [
        {"op": "Categorify", "columns": ["user", "item"]},
        {"op": "LambdaOp", "expression": expression, "output": "made", "dtype": "float32"},
    ]
    return [f"features.ops={json.dumps(ops)}"]


def test_weights_and_two_losses_add_up(folder):
    """An eighth of the squared error in standard deviations, plus the cross-entropy, each times its weight."""
    config = config_of(folder, "{name: logistic, label_weights: {seconds: 3}}", label=f"[{NUMBER}, long]")
    workspace = Workspace(folder / "workspace")
    data: PreparedData = etl(config, workspace).artifact
    model = build("logistic", {"label_weights": {"seconds": 3}}, data.schema)
    model.set_scales({"seconds": (300.0, 50.0)})
    batch = next(iter(Loader(data, "test", batch_size=8)))
    logits = torch.linspace(-1, 1, 16).reshape(8, 2)

    errors = logits[:, 0] - (batch.labels["seconds"] - 300) / 50
    expected = 3 / 8 * (errors**2).mean() + torch.nn.functional.binary_cross_entropy_with_logits(
        logits[:, 1], batch.labels["long"].float()
    )
    assert float(model.loss_of(logits, batch)) == pytest.approx(float(expected), rel=1e-6)
