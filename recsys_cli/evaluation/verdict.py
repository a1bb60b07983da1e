"""Verdict on the model against the baselines: paired tests on the same rows and users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.compare.comparison import Verdict, correction, figures_of, joined
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.intervals import Clusters, Impressions, by_owner
from recsys_cli.evaluation.pointwise import MeasuredRows
from recsys_cli.evaluation.result import MODEL
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import RANKING, PointwiseMetric, Ranked
from recsys_cli.metrics.labels import LOG_LOSS
from recsys_cli.metrics.named import COMPARED, headlines
from recsys_cli.metrics.rankings import IMPRESSION_AUC

_FLIPPED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better", "noise": "noise"}
_NO_RANKING_OBJECTIVE = (
    "The model predicts labels of given rows, not which items users choose. To rank the catalog, train ease or sasrec: recsys "
    "run CONFIG model.name=ease (recsys ls models lists the purpose of each model)."
)
_WORSE = "the rankings of this model are significantly worse than those of"
_CURE = "recsys run CONFIG model.name=auto trains several models and keeps the best"


class Verdicts(NamedTuple):
    """The verdict in sentences, and a warning about rankings significantly below popularity."""

    sentences: tuple[str, ...]
    warning: str | None


def verdicts(
    measured: MeasuredRows,
    rows: Interactions,
    ranked: Mapping[str, Ranked],
    config: EvaluateConfig,
    *,
    predicts_labels: bool,
    impressions: Impressions | None = None,
) -> Verdicts:
    """Return the verdict: on impressions or else on the rows, and on the rankings if any.

    The model comes first; cold-start users have distinct ids.
    """
    sentences, worse = _of_rankings(ranked, config, predicts_labels=predicts_labels)
    below = [name for name in worse if name.startswith("popularity")]
    warning = f"{_WORSE} {joined(below)}; {_CURE}" if below else None
    return Verdicts((*_of_rows(measured, rows, config, impressions), *sentences), warning)


def _of_rows(
    measured: MeasuredRows, rows: Interactions, config: EvaluateConfig, impressions: Impressions | None
) -> Iterator[str]:
    """Yield the test of AUC, or of RMSE for numeric labels; none if it is undefined.

    With impressions, AUC per impression: that of all rows also measures differences between users. A significantly
    worse log loss is reported too: a good order can have inaccurate probabilities.
    """
    own = measured.estimates[MODEL]
    if impressions is not None and len(impressions.rows):
        yield _sentence(*_compared_impressions(measured, rows, impressions, config))
    for name in headlines(own)[:1] if impressions is None else ():
        if own[name].value is not None:
            yield _sentence(*_compared(measured, rows, COMPARED[name], config))
    if LOG_LOSS.name in own and own[LOG_LOSS.name].value is not None:
        title, by = _compared(measured, rows, LOG_LOSS, config)
        if by["worse"]:
            yield f"By {title}, the model is significantly worse than {joined(by['worse'])}: its probabilities are inaccurate."


def _compared(
    measured: MeasuredRows, rows: Interactions, metric: PointwiseMetric, config: EvaluateConfig
) -> tuple[str, dict[Verdict, list[str]]]:
    assert metric.by_row is not None
    labels, clusters = rows.labels != 0, Clusters.of_users(rows.user_idx)
    systems = {
        name: Outcomes({}, {metric.name: metric.by_row.values(rows.labels, scores)}, labels, clusters)
        for name, scores in measured.scores.items()
    }
    return _tested(systems, metric.name, config)


def _compared_impressions(
    measured: MeasuredRows, rows: Interactions, impressions: Impressions, config: EvaluateConfig
) -> tuple[str, dict[Verdict, list[str]]]:
    labels, clusters = rows.labels != 0, Clusters.of_users(rows.user_idx)
    systems = {
        name: Outcomes({}, impressions.values(rows.labels, scores), labels, clusters, impressions=impressions.clusters)
        for name, scores in measured.scores.items()
    }
    return _tested(systems, IMPRESSION_AUC.name, config)


def _of_rankings(
    ranked: Mapping[str, Ranked], config: EvaluateConfig, *, predicts_labels: bool
) -> tuple[list[str], list[str]]:
    """Return the test of NDCG at the first cut-off, with an explanation for a worse model, and the better baselines.

    Without baselines of the same rankings: a model is not compared with itself.
    """
    ranked = {name: hits for name, hits in ranked.items() if name == MODEL or not _same(hits, ranked[MODEL])}
    if len(ranked) < 2 or not len(ranked[MODEL].num_relevant):
        return [], []
    k = min(config.k)
    metric = f"{config.label}ndcg@{k}"
    outcomes = {
        name: Outcomes.of_users({metric: by_owner(RANKING["ndcg"].compute(hits, k), hits.owners)})
        for name, hits in ranked.items()
    }
    title, by = _tested(outcomes, metric, config)
    return [_sentence(title, by), *([_NO_RANKING_OBJECTIVE] if by["worse"] and predicts_labels else [])], by["worse"]


def _same(one: Ranked, other: Ranked) -> bool:
    return np.array_equal(one.hits, other.hits) and np.array_equal(one.candidates, other.candidates)


def _tested(
    systems: Mapping[str, Outcomes], metric: str, config: EvaluateConfig
) -> tuple[str, dict[Verdict, list[str]]]:
    """Return the title of a metric, and the baselines by the model's verdict against them."""
    (figure,) = figures_of(systems, [metric], resamples=config.bootstrap, seed=config.seed)
    by: dict[Verdict, list[str]] = {"better": [], "worse": [], "noise": []}
    for name, difference in figure.differences.items():
        by[_FLIPPED[difference.verdict]].append(name)
    return figure.title, by


def _sentence(title: str, by: Mapping[Verdict, list[str]]) -> str:
    words: dict[Verdict, str] = {
        "better": "significantly better than",
        "worse": "significantly worse than",
        "noise": "not significantly different from",
    }
    parts = [f"{text} {joined(by[verdict])}" for verdict, text in words.items() if by[verdict]]
    corrected = correction(sum(map(len, by.values())))
    return f"By {title}, the model is {joined(parts)}{f' ({corrected})' if corrected else ''}."
