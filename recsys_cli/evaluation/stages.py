"""Stages of a model with several: recall of candidates, and the gain of the whole model over each stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.bootstrap import unit_estimates
from recsys_cli.evaluation.clusters import by_owner
from recsys_cli.evaluation.compare.comparison import Difference, figures_of
from recsys_cli.evaluation.compare.outcomes import Outcomes
from recsys_cli.evaluation.result import Estimate, StageFigures
from recsys_cli.metrics import RANKING, Ranked
from recsys_cli.metrics.metric import Floats
from recsys_cli.models.model import Stage

UNION = "all candidates"
"""Name of the union of all generators' candidates."""


def measure_stages(
    stages: Mapping[str, Stage],
    rank: Callable[[str, Stage, int], Ranked],
    whole: Ranked,
    config: EvaluateConfig,
    *,
    name: str,
) -> Iterator[StageFigures]:
    """Yield the figures of the generators, of the union of their candidates, of further stages, and of the whole model.

    Args:
        stages: The stages by name.
        rank: Ranks the users of the evaluation by a stage, up to a cut-off.
        whole: The rankings of the whole model.
        config: Cut-offs, and resamples of the intervals.
        name: Name of the whole model.
    """
    k = min(config.k)
    ranked = {stage: rank(stage, one, max(one.k or k, k)) for stage, one in stages.items()}
    generators = [stage for stage, one in stages.items() if one.k is not None]
    recalls = {stage: RANKING["recall"].compute(ranked[stage], stages[stage].k or k) for stage in generators}
    recalls[UNION] = _recall_of_union([(ranked[stage], stages[stage].k or k) for stage in generators])
    recalls = {stage: by_owner(values, whole.owners) for stage, values in recalls.items()}
    scores = {stage: by_owner(_ndcg(lists, k), whole.owners) for stage, lists in {name: whole, **ranked}.items()}
    gains = _gains(scores, config)
    for stage in [*generators, UNION, *(stage for stage in stages if stage not in generators), name]:
        gain = gains.get(stage)
        yield StageFigures(
            name=stage,
            k=stages[stage].k if stage in stages else None,
            recall=_estimate(recalls.get(stage), config),
            ndcg=_estimate(scores.get(stage), config),
            gain=None if gain is None else gain.value,
            gain_low=None if gain is None else gain.low,
            gain_high=None if gain is None else gain.high,
            verdict=None if gain is None else gain.verdict,
        )


def _gains(scores: Mapping[str, Floats], config: EvaluateConfig) -> dict[str, Difference]:
    """Return the differences of the first system from all others, by paired tests corrected for their number."""
    systems = {name: Outcomes.of_users({"ndcg@10": -values}) for name, values in scores.items()}
    (figure,) = figures_of(systems, ["ndcg@10"], resamples=config.bootstrap, seed=config.seed)
    return figure.differences


def _ndcg(ranked: Ranked, k: int) -> Floats:
    return np.asarray(RANKING["ndcg"].compute(ranked, k), np.float64)


def _recall_of_union(ranked: list[tuple[Ranked, int]]) -> Floats:
    """Return the share of each user's relevant items among the candidates of any generator."""
    places = np.concatenate([np.where(lists.hits, lists.candidates, -1)[:, :k] for lists, k in ranked], axis=1)
    places.sort(axis=1)
    first = np.ones_like(places, dtype=bool)
    first[:, 1:] = places[:, 1:] != places[:, :-1]
    found = np.count_nonzero(first & (places >= 0), axis=1)
    return np.asarray(found / ranked[0][0].num_relevant, np.float64)


def _estimate(values: Floats | None, config: EvaluateConfig) -> Estimate | None:
    if values is None:
        return None
    column = np.asarray(values, np.float64)[:, None]
    return unit_estimates(column, resamples=config.bootstrap, seed=config.seed)[0]
