"""Says whether a model beats the baselines: paired tests on the rows and the users that all of them were asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.clusters import Clusters
from recsys_cli.evaluation.compare.comparison import Verdict, figures_of
from recsys_cli.evaluation.compare.format import joined
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.pointwise import MeasuredRows
from recsys_cli.evaluation.result import MODEL
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import RANKING, PointwiseMetric, Ranked
from recsys_cli.metrics.label_task import COMPARED, headlines
from recsys_cli.metrics.log_loss import LOG_LOSS

_FLIPPED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better", "noise": "noise"}
_LABELS_ALONE = (
    "The model predicts the labels of given rows; it has not learned which items users choose. To rank the catalog take ease or "
    "sasrec: recsys run CONFIG model.name=ease (recsys ls models says which model is for what)."
)


def verdicts(
    found: MeasuredRows,
    rows: Interactions,
    ranked: Mapping[str, Ranked],
    config: EvaluateConfig,
    *,
    of_labels: bool,
) -> tuple[str, ...]:
    """Return the sentences: of the rows, and of the rankings where there are any.

    Args:
        found: What was measured of the rows.
        rows: The rows, with an id for every user who can be told apart.
        ranked: By system, the model first, for the same users.
        config: Cut-offs, number of resamples and seed.
        of_labels: Whether the model tells how likely labels are, and not what is chosen.
    """
    return (*_of_rows(found, rows, config), *_of_rankings(ranked, config, of_labels=of_labels))


def _of_rows(found: MeasuredRows, rows: Interactions, config: EvaluateConfig) -> Iterator[str]:
    """Say how the AUC compares, or of labels that are numbers the RMSE; nothing where the model's is not defined.

    A log loss that is worse than a baseline's is said too: an order may be right where probabilities are wrong.
    """
    own = found.estimates[MODEL]
    for name in headlines(own)[:1]:
        if own[name].value is not None:
            yield _sentence(*_compared(found, rows, COMPARED[name], config))
    if LOG_LOSS.name in own and own[LOG_LOSS.name].value is not None:
        title, by = _compared(found, rows, LOG_LOSS, config)
        if by["worse"]:
            yield f"By {title} the model is worse than {joined(by['worse'])}: its probabilities are off."


def _compared(
    found: MeasuredRows, rows: Interactions, metric: PointwiseMetric, config: EvaluateConfig
) -> tuple[str, dict[Verdict, list[str]]]:
    assert metric.by_row is not None
    labels, clusters = rows.labels != 0, Clusters.of_users(rows.user_idx)
    systems = {
        name: Outcomes({}, {metric.name: metric.by_row.values(rows.labels, scores)}, labels, clusters)
        for name, scores in found.scores.items()
    }
    return _tested(systems, metric.name, config)


def _of_rankings(ranked: Mapping[str, Ranked], config: EvaluateConfig, *, of_labels: bool) -> Iterator[str]:
    """Say how NDCG at the first cut-off compares, and why the model can be worse; nothing where nobody was ranked for."""
    if not ranked or not len(ranked[MODEL].num_relevant):
        return
    k = min(config.k)
    metric = f"{config.label}ndcg@{k}"
    found = {
        name: Outcomes.of_users({metric: np.asarray(RANKING["ndcg"].compute(hits, k), np.float64)})
        for name, hits in ranked.items()
    }
    title, by = _tested(found, metric, config)
    yield _sentence(title, by)
    if by["worse"] and of_labels:
        yield _LABELS_ALONE


def _tested(
    systems: Mapping[str, Outcomes], metric: str, config: EvaluateConfig
) -> tuple[str, dict[Verdict, list[str]]]:
    """Return what a figure is called, and which baselines the model is better or worse than."""
    (figure,) = figures_of(systems, [metric], resamples=config.bootstrap, seed=config.seed)
    by: dict[Verdict, list[str]] = {"better": [], "worse": [], "noise": []}
    for name, difference in figure.differences.items():
        by[_FLIPPED[difference.verdict]].append(name)
    return figure.title, by


def _sentence(title: str, by: Mapping[Verdict, list[str]]) -> str:
    words: dict[Verdict, str] = {"better": "better than", "worse": "worse than", "noise": "not to be told apart from"}
    parts = [f"{said} {joined(by[verdict])}" for verdict, said in words.items() if by[verdict]]
    return f"By {title} the model is {joined(parts)}."
