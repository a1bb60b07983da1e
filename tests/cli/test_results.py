"""Results of the stages on a terminal: whole numbers at any width."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from recsys_cli.cli import etl, evaluate, train
from recsys_cli.evaluation.result import Counts
from recsys_cli.workspace import Workspace
from tests.cli.conftest import drawn

ETL: dict[str, Any] = {
    "up_to_date": False,
    "path": "workspace/data/0123456789abcdef",
    "rows": {"train": 20_000_076, "valid": 5_000_019, "test": 0},
    "vocabularies": {"userId": 162_541, "movieId": 56_662, "genres": 20},
    "quality": {
        "train": {
            "userId": {"null": 0, "unseen": 0, "values": 100},
            "movieId": {"null": 5, "unseen": 0, "values": 100},
        },
        "valid": {
            "userId": {"null": 0, "unseen": 0, "values": 40},
            "movieId": {"null": 0, "unseen": 1, "values": 40_000},
        },
    },
    "cold": {"valid": {"users": {"distinct": 162_000, "cold": 0}, "items": {"distinct": 30_000, "cold": 2_385}}},
    "bad_rows": 3,
    "engine": "polars",
    "cluster": None,
    "workers": None,
    "seconds": {"total": 11.2},
    "peak_memory": 900_000_000,
    "findings": [{"level": "warning", "text": "70 rows leak"}, {"level": "note", "text": "9 rows come twice"}],
    "report": "workspace/data/0123456789abcdef/report.html",
    "next": "recsys train",
}
EPOCH = {
    "epoch": 1,
    "rows": 4000,
    "train_loss": 0.61234,
    "valid": {"loss": 0.6, "auc": 0.71239},
    "seconds": 2.0,
    "waiting": 0.1,
}
TRAIN: dict[str, Any] = {
    "up_to_date": False,
    "path": "workspace/runs/x",
    "history": [EPOCH, {**EPOCH, "epoch": 2, "valid": {"loss": 0.6, "auc": None}}],
    "best_epoch": 1,
    "parameters": 53_889,
    "device": "cpu",
    "precision": "fp32",
    "next": "recsys evaluate",
}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_etl_shows_splits_columns_and_findings(width):
    text = drawn(etl.draw, ETL, width)
    for figure in (
        "20,000,076",
        "80.0 %",
        "2,385 (8.0 %)",
        "0 (0.0 %)",
        "162,541",
        "5.0 %",
        "<0.1 %",
        "900 MB",
        "userId",
    ):
        assert figure in text
    assert "3 bad rows skipped" in text
    assert "test" not in text  # a split without rows
    assert "warning: 70 rows leak\nnote: 9 rows come twice\n" in text
    assert "report: workspace/data/0123456789abcdef/report.html" in text


def test_etl_up_to_date_is_one_line():
    text = drawn(etl.draw, {**ETL, "up_to_date": True}, 80)
    assert text == "prepared data is up to date: workspace/data/0123456789abcdef\n"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_train_shows_each_epoch_and_marks_the_best(width):
    text = drawn(train.draw, TRAIN, width)
    for figure in ("* 1", "0.6123", "0.7124", "2000", "5.0 %", "2.0 s", "–", "53,889"):
        assert figure in text
    assert "* 2" not in text


def estimate(value: float | None, spread: float = 0.01) -> dict[str, float | None]:
    """Give a figure and its interval."""
    if value is None:
        return {"value": None, "low": None, "high": None}
    return {"value": value, "low": value - spread, "high": value + spread}


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("auc", (0.7, 0.6, 0.5), {0.7}),
        ("log_loss", (0.7, 0.6, 0.65), {0.6}),
        ("calibration", (1.2, 0.9, 0.5), {0.9}),
        ("ndcg@10", (0.1, 0.3, 0.3), {0.3}),
        ("auc", (0.7,), set()),
    ],
)
def test_evaluate_marks_the_best_by_the_direction_of_the_metric(metric, values, best):
    systems = {name: {metric: estimate(value)} for name, value in zip(("model", "one", "other"), values, strict=False)}
    text = drawn(lambda to, found: evaluate._draw_systems(to, "title", found, [metric]), systems, 120)
    marked = {float(word.strip("*")) for word in text.split() if word.startswith("*")}
    assert marked == best


@pytest.mark.parametrize("width", [60, 80, 120])
def test_evaluate_shows_whole_figures_at_any_width(width):
    systems = {
        name: {"auc": estimate(0.7943), "log_loss": estimate(None)} for name in ("model", "item mean", "constant")
    }
    text = drawn(lambda to, found: evaluate._draw_systems(to, "title", found, ["auc", "log_loss"]), systems, width)
    assert (text.count("0.7943"), text.count("*")) == (3, 0)  # of equal ones none is the best
    assert text.count("[0.7843,") == 3
    assert text.count("0.8043]") == 3
    assert text.count("–") >= 3


def evaluation() -> dict[str, Any]:
    """Return an evaluation with all parts: two cut-offs, eight cohorts, notes."""
    of_rows = dict.fromkeys(("auc", "pr_auc", "log_loss", "accuracy", "f1", "rmse", "mae", "gauc"), estimate(0.7943))
    of_rankings = {f"{name}@{k}": estimate(0.1234) for k in (10, 50) for name in ("hr", "ndcg", "mrr", "recall", "map")}
    counts = dict.fromkeys(Counts.model_fields, 10_000) | {"each_next_item": False}
    ranking = dict.fromkeys(("model", "popularity", "ease"), of_rankings)
    cohort = {"rows": 2500, "users": 500, "pointwise": {"model": {"auc": estimate(0.6)}}, "ranking": ranking}
    return {
        "up_to_date": False,
        "run": "20261121T121227-mlp-dbbd8a2c",
        "model": "mlp",
        "dataset": "toys",
        "selected": [],
        "split": "test",
        "counts": counts,
        "config": {"candidates": "all", "k": [50, 10]},
        "pointwise": dict.fromkeys(("model", "item mean", "constant"), of_rows),
        "ranking": ranking,
        "beyond": {name: {"coverage@10": {"value": 0.0421, "low": None, "high": None}} for name in ranking},
        "cohorts": [{**cohort, "name": f"cohort {number}"} for number in range(8)],
        "verdict": [
            "By AUC, the model is significantly better than item mean and constant (corrected for 2 comparisons)."
        ],
        "notes": ["What a reader of the figures has to know."],
        "seconds": {"rank": 2.0},
        "report": "workspace/runs/x/report.html",
    }


def test_evaluate_answers_shortly_and_keeps_the_rest_for_the_report():
    text = drawn(evaluate.draw, evaluation(), 100)
    assert len(text.splitlines()) <= 33
    for shown in ("0.7943 [0.7843, 0.8043]", "NDCG@10", "0.0421", "cohort 7", "better than item mean", "has to know"):
        assert shown in text
    for kept_back in ("NDCG@50", "MRR@10", "accuracy"):
        assert kept_back not in text
    assert text.endswith("took 2.0 s; report: workspace/runs/x/report.html\n")
    assert "†" not in text
    assert "mlp †" in drawn(evaluate.draw, evaluation() | {"selected": ["epoch"]}, 120)
    undefined = {"model": {"auc": {"value": None, "low": None, "high": None}}}
    one_class = evaluation() | {"cohorts": [one | {"pointwise": undefined} for one in evaluation()["cohorts"]]}
    assert "by cohort: AUC of mlp, NDCG@10 of all" in text
    assert "by cohort: NDCG@10 of all" in drawn(evaluate.draw, one_class, 100)


def test_evaluate_of_numeric_labels_shows_errors():
    errors = {"rmse": estimate(0.8812), "mae": estimate(0.6745), "normalized_entropy": estimate(0.9)}
    ratings = evaluation() | {
        "pointwise": {"model": errors, "constant": errors},
        "ranking": {},
        "beyond": {},
        "cohorts": [],
    }
    text = drawn(evaluate.draw, ratings, 100)
    assert "RMSE" in text
    assert "MAE" in text
    assert "entropy" not in text


def test_run_does_everything_and_then_is_up_to_date(recsys, finished):
    assert list(finished) == ["etl", "train", "evaluate"]
    assert [stage["up_to_date"] for stage in finished.values()] == [True, False, False]
    assert finished["evaluate"]["pointwise"]["model"]["auc"]["value"] is not None
    again = recsys("run")
    assert again.code == 0
    assert again.out.count("up to date") == 3
    assert "popularity" in again.out
    assert "evaluation is up to date; report: " in again.out
    assert all(stage["up_to_date"] for stage in recsys("run", "--json").json.values())


def test_after_a_run_the_other_commands_know_it(recsys, finished):
    name = finished["train"]["run"]
    found = recsys("status", "--json").json
    assert [(run["name"], run["state"]) for run in found["runs"]] == [(name, "evaluated")]
    assert found["runs"][0]["metrics"]["auc"] == finished["evaluate"]["pointwise"]["model"]["auc"]["value"]
    assert found["current"]["next"] == "recsys report"
    assert name in recsys("status").out
    report = Path(recsys("report").out.strip())
    assert report.is_file()
    assert recsys("report", name).out == recsys("report").out
    assert recsys("train", "--json").json["up_to_date"]


def test_evaluate_takes_a_run_and_overrides_of_its_own_section(recsys, finished):
    name = finished["train"]["run"]
    found = recsys("evaluate", name[-8:], "evaluate.split=valid", "--json").json
    assert (found["run"], found["split"]) == (name, "valid")
    assert json.loads(Path(found["path"]).read_text())["split"] == "valid"
    answer = recsys("evaluate", name, "train.epochs=3")
    assert answer.code == 2
    assert "a finished run only accepts overrides of evaluate.KEY and recommend.KEY" in answer.err
    assert "hint: train another run: recsys train " in answer.err


def test_evaluate_of_an_untrained_config_is_an_error(recsys, finished):
    answer = recsys("evaluate", "ratings.yaml", "train.epochs=3")
    assert answer.code == 3
    assert "the model of this config is not trained in workspace" in answer.err
    assert "hint: recsys train" in answer.err


def test_an_unfinished_run_is_shown_and_resumed_from(recsys, finished):
    folder = Path(finished["train"]["path"])
    (folder / "manifest.json").unlink()
    (folder / "evaluation.json").unlink()
    found = recsys("status", "--json").json
    assert found["runs"][0]["state"] == "unfinished"
    assert found["current"]["next"] == "recsys train --resume"
    with Workspace(Path("workspace")).lock(f"run-{folder.name}"):
        busy = recsys("status", "--json").json
        assert busy["runs"][0]["state"] == "training"
        assert busy["runs"][0]["process"] == {"pid": os.getpid(), "host": socket.gethostname()}
        assert busy["current"]["next"] == f"wait: process {os.getpid()} on {socket.gethostname()} is training it"
        locked = recsys("train", "--resume")
        assert locked.code == 2
        assert f"process {os.getpid()} on {socket.gethostname()} works on run-{folder.name}" in locked.err
    assert recsys("evaluate", folder.name).code == 3
    assert recsys("train", "--resume", "--json").json["run"] == folder.name
    (folder / "manifest.json").unlink()
    whole = recsys("run", "--json").json
    assert (whole["train"]["run"], whole["evaluate"]["run"]) == (folder.name, folder.name)


def test_speed_of_epochs_is_in_the_unit_of_the_model():
    assert "rows/s" in drawn(train.draw, TRAIN, 120)  # a run of before has no unit
    of_users = drawn(train.draw, {**TRAIN, "unit": "users"}, 120)
    assert "users/s" in of_users
    assert "rows/s" not in of_users


def test_train_names_the_popularity_that_no_candidate_exceeds():
    one = {"label": "popularity, half-life 1/8 of train", "run": "x", "metric": "ndcg@10", "value": 0.2, "seconds": 1.0}
    others = [{**one, "label": label, "value": 0.1} for label in ("popularity", "ease")]
    text = drawn(train.draw, {**TRAIN, "candidates": [one, *others]}, 120)
    assert "no candidate ranks better than popularity, half-life 1/8 of train on valid" in text
