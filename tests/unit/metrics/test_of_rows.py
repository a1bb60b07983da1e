"""Metrics of rows, of counted scores and of rankings against their definitions, scikit-learn and ranx."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import get_args

import numpy as np
import pytest

from recsys_cli.config import TrainConfig
from recsys_cli.features.schema import Task
from recsys_cli.metrics import GROUPED, POINTWISE, RANKING, Hits
from recsys_cli.metrics.labels import AUC, LOG_LOSS, reliability
from recsys_cli.metrics.metric import ScoreCounts
from recsys_cli.metrics.named import BINARY, COMPARED, REGRESSION, TASKS, check_reported, headlines


def test_one_class_and_no_rows_are_undefined_and_confident_rows_finite() -> None:
    for labels in ([1, 1], [0, 0], []):
        assert math.isnan(AUC.of_rows(labels, [0.1, 0.2][: len(labels)]))
    assert math.isnan(LOG_LOSS.of_rows([], []))
    assert LOG_LOSS.of_rows([1, 0], [1000.0, -1000.0]) == 0.0
    assert LOG_LOSS.of_rows([0], [1000.0]) == 1000.0
    assert POINTWISE["log_loss"].compute(ScoreCounts.of(np.array([1, 0], np.float32), [-1000.0, 1000.0])) == 1000


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = rng.normal(0.3, 2, 20_000).astype(np.float32)
    return (rng.random(20_000) < 1 / (1 + np.exp(-logits))).astype(np.float32), logits


def test_reliability_curve_of_honest_scores_is_near_the_diagonal(rows) -> None:
    predicted, label = reliability(ScoreCounts.of(*rows))
    assert len(predicted) == 15
    assert label == pytest.approx(predicted, abs=0.05)


sklearn = pytest.importorskip("sklearn.metrics")


@pytest.fixture(params=[False, True], ids=["distinct", "tied"])
def distinct_or_tied(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=2_000)
    if request.param:
        logits = logits.round(1)
    return (rng.random(2_000) < 1 / (1 + np.exp(-logits))).astype(np.float32), logits


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("auc", lambda y, p: sklearn.roc_auc_score(y, p)),
        ("pr_auc", lambda y, p: sklearn.average_precision_score(y, p)),
        ("log_loss", lambda y, p: sklearn.log_loss(y, p)),
        ("accuracy", lambda y, p: sklearn.accuracy_score(y, p >= 0.5)),
        ("f1", lambda y, p: sklearn.f1_score(y, p >= 0.5)),
        ("rmse", lambda y, p: np.sqrt(sklearn.brier_score_loss(y, p))),
        ("mae", lambda y, p: sklearn.mean_absolute_error(y, p)),
        ("normalized_entropy", lambda y, p: sklearn.log_loss(y, p) / sklearn.log_loss(y, np.full(len(y), y.mean()))),
    ],
)
def test_pointwise_metric_equals_scikit_learn(name: str, theirs, distinct_or_tied) -> None:
    labels, logits = distinct_or_tied
    ours = POINTWISE[name].compute(ScoreCounts.of(labels, logits))
    if name in {"auc", "log_loss"}:  # as in training
        assert POINTWISE[name].of_rows(labels, logits) == pytest.approx(ours, abs=1e-12)
    assert ours == pytest.approx(theirs(labels.astype(np.float64), 1 / (1 + np.exp(-logits))), rel=1e-9)


THEIRS = {"hr": "hit_rate", "ndcg": "ndcg", "mrr": "mrr", "recall": "recall", "precision": "precision"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::Warning")  # of its own compiler
def test_ranking_metrics_equal_those_of_ranx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # to compile ranx takes a minute
    ranx = pytest.importorskip("ranx")
    rng = np.random.default_rng(1)
    ranked = np.stack([rng.permutation(60)[:20] for _ in range(50)])
    relevant = [set(rng.permutation(60)[: rng.integers(1, 30)].tolist()) for _ in range(50)]
    hits = np.array([[item in wanted for item in row] for row, wanted in zip(ranked.tolist(), relevant, strict=True)])
    found = Hits(hits, np.array([len(wanted) for wanted in relevant]))
    qrels = ranx.Qrels({str(u): {str(item): 1 for item in wanted} for u, wanted in enumerate(relevant)})
    run = ranx.Run(
        {str(u): {str(item): 20.0 - place for place, item in enumerate(row)} for u, row in enumerate(ranked)}
    )
    names = [f"{name}@{k}" for name in THEIRS.values() for k in (1, 5, 20)]
    theirs = ranx.evaluate(qrels, run, names, return_mean=False, threads=1)
    users = [int(user) for user in qrels.qrels]
    for name, called in THEIRS.items():
        for k in (1, 5, 20):
            ours = RANKING[name].compute(found, k)[users]
            assert theirs[f"{called}@{k}"].tolist() == pytest.approx(ours.tolist()), f"{name}@{k}"


def test_every_label_task_has_metrics_with_a_default() -> None:
    assert set(TASKS) == set(get_args(Task))
    for task in TASKS.values():
        assert task.default.by_row is not None
        assert set(task.headlines) <= {*task.metrics, *GROUPED}
        assert all(metric.of_errors is (task is REGRESSION) for metric in task.metrics.values())
        for name in task.leaderboard:
            check_reported(name)
    assert TrainConfig().monitor == BINARY.default.name


def test_paired_tests_have_one_metric_of_a_name() -> None:
    assert list(COMPARED) == ["auc", "log_loss", "rmse", "mae"]


@pytest.mark.parametrize(
    ("known", "expected"),
    [(["log_loss", "rmse", "auc"], ("auc", "log_loss")), (["mae", "rmse"], ("rmse", "mae")), ([], ())],
)
def test_headlines_are_those_of_the_task(known: list[str], expected: tuple[str, ...]) -> None:
    assert headlines(known) == expected


def test_metrics_import_only_numpy() -> None:
    heavy = "{'torch', 'pyarrow', 'polars', 'pandas', 'pydantic', 'scipy'}"
    program = f"import sys, recsys_cli.metrics.named; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
