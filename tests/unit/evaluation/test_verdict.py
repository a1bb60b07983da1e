"""Whether a model beats the baselines, in sentences: on rows and users where that is known by construction."""

from __future__ import annotations

import numpy as np
import pytest

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.intervals import Impressions
from recsys_cli.evaluation.measure import verdicts
from recsys_cli.evaluation.pointwise import MeasuredRows
from recsys_cli.evaluation.result import Curve, Estimate
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import Ranked

CONFIG = EvaluateConfig(k=(10, 2), bootstrap=50)
LABELS = np.tile(np.float32([0, 1]), 200)


def asked(labels: np.ndarray) -> Interactions:
    ids = np.arange(3, 3 + len(labels), dtype=np.int32)
    return Interactions(ids, ids, labels)


def rows(scores: dict[str, np.ndarray], **of_model: float | None) -> MeasuredRows:
    estimates = {name: {metric: Estimate(value=value) for metric, value in of_model.items()} for name in scores}
    return MeasuredRows(scores, estimates, Curve(x=(), y=()))


def ranked(first_is_right: np.ndarray) -> Ranked:
    """Give rankings of one place's worth: for each user whether it is right."""
    hits = np.zeros((len(first_is_right), 10), np.bool_)
    hits[:, 0] = first_is_right
    return Ranked(hits, np.ones(len(hits), np.int64), np.zeros(hits.shape, np.int32))


def test_verdict_by_auc() -> None:
    noise = np.random.default_rng(0).normal(size=len(LABELS)).astype(np.float32)
    scores = {"model": noise + LABELS, "worse": noise, "same": 2 * (noise + LABELS), "best": LABELS}
    (said,) = verdicts(rows(scores, auc=0.7, rmse=0.5), asked(LABELS), {}, CONFIG, predicts_labels=True).sentences
    assert said == (
        "By AUC, the model is significantly better than worse, significantly worse than best and not significantly different "
        "from same (corrected for 3 comparisons)."
    )


def test_verdict_of_impressions_is_by_their_auc_and_not_by_differences_between_users() -> None:
    rng = np.random.default_rng(4)
    index = np.repeat(np.arange(300), 10)
    labels = (rng.random(3_000) < np.where(index % 2, 0.1, 0.6)).astype(np.float32)
    noise = rng.normal(size=3_000).astype(np.float32)
    users = np.repeat(np.arange(3, 303, dtype=np.int32), 10)
    impressions = Impressions.of(index, labels, users)
    of_users = {"model": noise - 5.0 * (index % 2), "constant": np.zeros_like(labels)}
    (said,) = verdicts(
        rows(of_users, auc=0.8), Interactions(users, users, labels), {}, CONFIG, predicts_labels=True,
        impressions=impressions,
    ).sentences  # fmt: skip
    assert said == "By impression AUC, the model is not significantly different from constant."
    taste = {**of_users, "model": of_users["model"] + 2 * labels}
    (said,) = verdicts(
        rows(taste, auc=0.8), Interactions(users, users, labels), {}, CONFIG, predicts_labels=True,
        impressions=impressions,
    ).sentences  # fmt: skip
    assert said == "By impression AUC, the model is significantly better than constant."


def test_verdict_reports_inaccurate_probabilities() -> None:
    """The order is right, and every score three times as sure as it may be."""
    rng = np.random.default_rng(1)
    sure = 20 * (LABELS - 0.5) + rng.normal(0, 12, len(LABELS)).astype(np.float32)
    scores = {"model": sure, "constant": np.zeros_like(LABELS)}
    of_order, of_loss = verdicts(
        rows(scores, auc=0.8, log_loss=2.0), asked(LABELS), {}, CONFIG, predicts_labels=True
    ).sentences
    assert of_order == "By AUC, the model is significantly better than constant."
    assert of_loss == "By log loss, the model is significantly worse than constant: its probabilities are inaccurate."


def test_verdict_of_numeric_labels_is_by_rmse() -> None:
    ratings = np.tile(np.float32([1, 2, 4]), 100)
    scores = {"model": ratings + 0.1, "mean": np.full_like(ratings, ratings.mean())}
    (said,) = verdicts(rows(scores, rmse=0.1), asked(ratings), {}, CONFIG, predicts_labels=True).sentences
    assert said == "By RMSE, the model is significantly better than mean."


def test_no_verdict_on_undefined_metrics() -> None:
    one_class = np.ones_like(LABELS)
    scores = {"model": LABELS, "constant": one_class}
    assert (
        verdicts(rows(scores, auc=None, rmse=0.1), asked(one_class), {}, CONFIG, predicts_labels=True).sentences == ()
    )


@pytest.mark.parametrize("predicts_labels", [True, False])
def test_verdict_on_rankings_explains_a_worse_label_model(predicts_labels: bool) -> None:
    users = np.arange(300)
    systems = {"model": ranked(users < 100), "ease": ranked(users < 200), "popularity": ranked(users < 20)}
    found = rows({"model": LABELS}, auc=None)
    said, *why = verdicts(found, asked(LABELS), systems, CONFIG, predicts_labels=predicts_labels).sentences
    assert said == (
        "By NDCG@2, the model is significantly better than popularity and significantly worse than ease (corrected for 2 "
        "comparisons)."
    )
    assert len(why) == predicts_labels
    assert all("recsys run CONFIG model.name=ease" in sentence for sentence in why)


@pytest.mark.parametrize("is_chosen", [True, False])
def test_rankings_below_popularity_are_a_warning_and_those_level_with_it_have_advice(is_chosen: bool) -> None:
    users = np.arange(300)
    below = {"model": ranked(users < 20), "ease": ranked(users < 10), "popularity": ranked(users < 200)}
    found = rows({"model": LABELS}, auc=None)
    warning = verdicts(found, asked(LABELS), below, CONFIG, predicts_labels=True, is_chosen=is_chosen).warning
    assert warning is not None
    assert warning.startswith("the rankings of this model are significantly worse than those of popularity; ")
    command = f"recsys run CONFIG model.name={'popularity' if is_chosen else 'auto'}"
    assert command in warning
    level = {**below, "model": ranked(users < 199)}
    said = verdicts(found, asked(LABELS), level, CONFIG, predicts_labels=True, is_chosen=is_chosen)
    assert said.warning is None
    assert "not shown to be worth more than popularity, which is simpler" in said.sentences[1]
    assert command in said.sentences[1]
    above = {**below, "model": ranked(users < 201)}
    assert len(verdicts(found, asked(LABELS), above, CONFIG, predicts_labels=True).sentences) == 1


def test_a_model_is_not_compared_with_itself() -> None:
    users = np.arange(300)
    systems = {"model": ranked(users < 20), "ease": ranked(users < 200), "popularity": ranked(users < 20)}
    found = rows({"model": LABELS}, auc=None)
    (said,) = verdicts(found, asked(LABELS), systems, CONFIG, predicts_labels=False).sentences
    assert said == "By NDCG@2, the model is significantly worse than ease."
    del systems["ease"]
    assert verdicts(found, asked(LABELS), systems, CONFIG, predicts_labels=False) == ((), None)


def test_verdict_names_sampled_metrics() -> None:
    users = np.arange(300)
    systems = {"model": ranked(users < 200), "ease": ranked(users < 100)}
    config = CONFIG.model_copy(update={"candidates": "sampled-uniform"})
    (said,) = verdicts(
        rows({"model": LABELS}, auc=None), asked(LABELS), systems, config, predicts_labels=True
    ).sentences
    assert said == "By sampled NDCG@2, the model is significantly better than ease."


def test_no_verdict_on_empty_rankings() -> None:
    nobody = ranked(np.empty(0, np.bool_))
    assert verdicts(
        rows({"model": LABELS}, auc=None),
        asked(LABELS),
        {"model": nobody, "ease": nobody},
        CONFIG,
        predicts_labels=True,
    ) == ((), None)
