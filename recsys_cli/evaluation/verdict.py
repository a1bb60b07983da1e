"""Says whether a model beats the baselines: paired tests on the rows and the users that all of them were asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.compare.comparison import Verdict, figures_of
from recsys_cli.evaluation.compare.outcomes import AUC, Outcomes
from recsys_cli.evaluation.compare.paired import placements
from recsys_cli.evaluation.compare.words import joined
from recsys_cli.evaluation.metrics import RANKING, Ranked
from recsys_cli.evaluation.pointwise import MeasuredRows
from recsys_cli.evaluation.result import MODEL

_RMSE = "rmse"
_FLIPPED: dict[Verdict, Verdict] = {"better": "worse", "worse": "better", "noise": "noise"}
_LABELS_ALONE = (
    "Labels tell which of the items that people chose they liked; a model that learns from them alone has not seen which items "
    "people choose."
)


def verdicts(
    found: MeasuredRows,
    labels: npt.NDArray[np.floating],
    ranked: Mapping[str, Ranked],
    config: EvaluateConfig,
    *,
    of_labels: bool,
) -> tuple[str, ...]:
    """Return the sentences: of the rows, and of the rankings where there are any.

    Args:
        found: What was measured of the rows.
        labels: Their main label, shape (N,).
        ranked: By system, the model first, for the same users.
        config: Cut-offs, number of resamples and seed.
        of_labels: Whether the model tells how likely labels are, and not what is chosen.
    """
    return (*_of_rows(found, labels, config), *_of_rankings(ranked, config, of_labels=of_labels))


def _of_rows(found: MeasuredRows, labels: npt.NDArray[np.floating], config: EvaluateConfig) -> Iterator[str]:
    """Say how the AUC compares, or of labels that are numbers the RMSE; nothing where the model's is not defined."""
    own, positive, wanted = found.estimates[MODEL], labels != 0, labels.astype(np.float64)
    metric = AUC if AUC in own else _RMSE
    if metric not in own or own[metric].value is None:
        return
    rows = {
        name: placements(positive, one) if metric == AUC else np.square(one.astype(np.float64) - wanted)
        for name, one in found.scores.items()
    }
    title, by = _tested({name: Outcomes({}, {metric: one}, positive) for name, one in rows.items()}, metric, config)
    yield _sentence(title, by)


def _of_rankings(ranked: Mapping[str, Ranked], config: EvaluateConfig, *, of_labels: bool) -> Iterator[str]:
    """Say how NDCG at the first cut-off compares, and why the model can be worse; nothing where nobody was ranked for."""
    if not ranked or not len(ranked[MODEL].num_relevant):
        return
    k = min(config.k)
    metric, nobody = f"{config.label}ndcg@{k}", np.empty(0, dtype=np.bool_)
    found = {
        name: Outcomes({metric: np.asarray(RANKING["ndcg"].compute(hits, k), np.float64)}, {}, nobody)
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
