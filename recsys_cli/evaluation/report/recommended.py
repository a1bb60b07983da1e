"""Data of the report's ranking plots: metrics over the cut-off, and the popularity of recommended items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.bootstrap import ranking_estimates
from recsys_cli.evaluation.cold_items import ColdItems
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.report.users import ExampleUser, sample_users
from recsys_cli.evaluation.result import Curve, Estimate
from recsys_cli.evaluation.user_history import SplitInteractions
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import Hits
from recsys_cli.workspace import PreparedData

METRICS = {
    "ndcg": "NDCG: discounted gain of the hits, relative to the best possible ranking.",
    "recall": "Recall: share of the ground truth in the top k.",
    "hr": "Hit rate: share of users with at least one hit in the top k.",
    "precision": "Precision: share of hits in the top k.",
}
"""Metrics plotted over k, with their definitions."""
CONSUMED = "interactions of train"
"""Reference curve for the popularity of recommendations."""
_FIRST_CUT_OFFS, _CUT_OFFS, _RANKS = 5, 12, 120


@dataclass(frozen=True)
class RankingSection:
    """The report's section on rankings."""

    at_k: CutOffChart
    popularity: dict[str, Curve]
    users: list[ExampleUser]

    @classmethod
    def of(
        cls, rankings: Rankings, data: PreparedData, names: IdNames, config: EvaluateConfig
    ) -> RankingSection | None:
        """Compute the section; None without rankings."""
        if not rankings.systems or not len(rankings.users):
            return None
        by_user = SplitByUser.read(data, rankings.split, config)
        splits = SplitInteractions({"train": by_user.history, rankings.split: by_user.ground_truth})
        ids = by_user.new.ids(rankings.users, rankings.user_hashes)
        return cls(
            metrics_at_k(rankings, config),
            popularity_curves(rankings, by_user.train.observed(), by_user.cold),
            sample_users(rankings, splits, names, config, ids=ids),
        )

    def called(self, name: Callable[[Mapping[str, Any]], dict[str, Any]]) -> RankingSection:
        """Return the section with the model's own name."""
        estimates = {metric: name(by_system) for metric, by_system in self.at_k.estimates.items()}
        return replace(self, at_k=replace(self.at_k, estimates=estimates), popularity=name(self.popularity))


@dataclass(frozen=True)
class CutOffChart:
    """Metrics over the cut-off: all up to five, then with growing gaps, plus those of the config.

    One estimate for each cut-off, by metric and system.
    """

    k: tuple[int, ...]
    estimates: Mapping[str, Mapping[str, list[Estimate]]]


def metrics_at_k(rankings: Rankings, config: EvaluateConfig) -> CutOffChart:
    """Compute metrics for cut-offs from 1 to P; at the evaluation's cut-offs they are equal to its metrics."""
    ks = _cut_offs(rankings.k)
    ranked = {
        system: Hits(hits, rankings.num_relevant, owners=rankings.owners) for system, hits in rankings.hits.items()
    }
    estimates = ranking_estimates(ranked, ks, config)
    return CutOffChart(
        ks,
        {
            metric: {
                system: [by_name[f"{config.label}{metric}@{k}"] for k in ks] for system, by_name in estimates.items()
            }
            for metric in METRICS
        },
    )


def popularity_curves(rankings: Rankings, train: Interactions, cold: ColdItems) -> dict[str, Curve]:
    """Return the share of recommendations of the n most popular items, for each n: a Lorenz curve from the top.

    Of the train rows, and of each system's ranks up to the smallest cut-off.
    """
    order, num_items = cold.candidates(train), cold.first + cold.number
    ranks = np.unique(np.geomspace(1, max(1, len(order)), _RANKS).round().astype(np.int64))
    counts = {CONSUMED: np.bincount(train.item_idx, minlength=num_items)}
    for system, items in rankings.items.items():
        first = items[:, : min(rankings.k)]
        counts[system] = np.bincount(first[first > 0], minlength=num_items)
    return {name: _shares(count[order], ranks) for name, count in counts.items()}


def _cut_offs(configured: tuple[int, ...]) -> tuple[int, ...]:
    largest = max(configured)
    spaced = (
        np.geomspace(_FIRST_CUT_OFFS, max(largest, _FIRST_CUT_OFFS), _CUT_OFFS - _FIRST_CUT_OFFS).round().astype(int)
    )
    cut_offs = {*range(1, _FIRST_CUT_OFFS + 1), *spaced.tolist(), *configured}
    return tuple(sorted(k for k in cut_offs if k <= largest))


def _shares(counts: npt.NDArray[np.int64], ranks: npt.NDArray[np.int64]) -> Curve:
    total = counts.sum()
    if not total:
        return Curve(x=(), y=())
    return Curve(x=tuple(ranks.tolist()), y=tuple((np.cumsum(counts)[ranks - 1] / total).round(6).tolist()))
