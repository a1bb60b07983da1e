"""Equality with the metrics of scikit-learn and ranx."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.metrics import POINTWISE, RANKING, Hits
from recsys_cli.metrics.metric import ScoreCounts

sklearn = pytest.importorskip("sklearn.metrics")


@pytest.fixture(params=[False, True], ids=["distinct", "tied"])
def rows(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray]:
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
def test_pointwise_metric_equals_scikit_learn(name: str, theirs, rows) -> None:
    labels, logits = rows

    ours = POINTWISE[name].compute(ScoreCounts.of(labels, logits))

    assert ours == pytest.approx(theirs(labels.astype(np.float64), 1 / (1 + np.exp(-logits))), rel=1e-9)


THEIRS = {"hr": "hit_rate", "ndcg": "ndcg", "mrr": "mrr", "recall": "recall", "precision": "precision"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::Warning")  # of its own compiler
def test_ranking_metrics_equal_those_of_ranx() -> None:
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
