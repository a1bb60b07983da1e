"""What is drawn of the rankings themselves: metrics over all cut-offs, and how popular what is recommended is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.bootstrap import ranking_estimates
from recsys_cli.evaluation.cold_items import ColdItems
from recsys_cli.evaluation.names import IdNames
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.report.users import ExampleUser, sample_users
from recsys_cli.evaluation.result import Curve, Estimate, renamed
from recsys_cli.evaluation.user_history import SplitInteractions
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import Hits
from recsys_cli.workspace import PreparedData

METRICS = {
    "ndcg": "NDCG: hits, the more the higher they stand, over what could be had at best.",
    "recall": "Recall: how much of what there was to find is among the first k.",
    "hr": "Hit rate: for how many users something is found.",
    "precision": "Precision: how much of what is shown is a hit.",
}
"""Which metrics are drawn over k, and what a reader is told of them."""
CONSUMED = "interactions of train"
"""What the popularity of recommendations is compared with."""
_FIRST_CUT_OFFS, _CUT_OFFS, _RANKS = 5, 12, 120


@dataclass(frozen=True)
class RankingSection:
    """What the page shows of rankings.

    Attributes:
        at_k: Metrics over the cut-off.
        popularity: See `popularity_curves`.
        users: A few users.
    """

    at_k: CutOffChart
    popularity: dict[str, Curve]
    users: list[ExampleUser]

    @classmethod
    def of(
        cls, rankings: Rankings, data: PreparedData, names: IdNames, config: EvaluateConfig
    ) -> RankingSection | None:
        """Gather it; None where nothing was ranked.

        Args:
            rankings: What the evaluation ranked.
            data: That it was measured on.
            names: What users and items are called.
            config: What the evaluation was asked for.
        """
        if not rankings.systems or not len(rankings.users):
            return None
        by_user = SplitByUser.read(data, rankings.split, seed=config.seed)
        splits = SplitInteractions({"train": by_user.history, rankings.split: by_user.wanted})
        ids = by_user.new.ids(rankings.users, rankings.user_hashes)
        return cls(
            metrics_at_k(rankings, config),
            popularity_curves(rankings, by_user.train.observed(), by_user.cold),
            sample_users(rankings, splits, names, config, ids=ids),
        )

    def called(self, own: str) -> RankingSection:
        """Return the same with the model under its own name."""
        estimates = {metric: renamed(found, own) for metric, found in self.at_k.estimates.items()}
        return replace(self, at_k=replace(self.at_k, estimates=estimates), popularity=renamed(self.popularity, own))


@dataclass(frozen=True)
class CutOffChart:
    """Metrics over the cut-off.

    Attributes:
        k: The cut-offs, ascending: all up to five, then fewer and fewer, and those of the config.
        estimates: By metric and system, one for each cut-off.
    """

    k: tuple[int, ...]
    estimates: Mapping[str, Mapping[str, list[Estimate]]]


def metrics_at_k(rankings: Rankings, config: EvaluateConfig) -> CutOffChart:
    """Compute metrics for cut-offs from 1 to P; where the evaluation has the cut-off they are its figures.

    Args:
        rankings: Of U users, at least one.
        config: Of the evaluation: its seed decides the resamples.
    """
    ks = _cut_offs(rankings.k)
    ranked = {system: Hits(hits, rankings.num_relevant) for system, hits in rankings.hits.items()}
    found = ranking_estimates(ranked, ks, config)
    return CutOffChart(
        ks,
        {
            metric: {system: [figures[f"{config.label}{metric}@{k}"] for k in ks] for system, figures in found.items()}
            for metric in METRICS
        },
    )


def popularity_curves(rankings: Rankings, train: Interactions, cold: ColdItems) -> dict[str, Curve]:
    """Return which share of what is recommended goes to the most popular items, however many: a Lorenz curve from the top.

    Args:
        rankings: Of some systems; the smallest cut-off counts, because that is what people see.
        train: Its rows say how popular an item is.
        cold: The items that train does not know.

    Returns:
        Cumulated shares over the number of items, the most popular first: of the rows of train, and by system.
    """
    order, num_items = cold.candidates(train), cold.first + cold.number
    ranks = np.unique(np.geomspace(1, max(1, len(order)), _RANKS).round().astype(np.int64))
    counts = {CONSUMED: np.bincount(train.item_idx, minlength=num_items)}
    for system, items in rankings.items.items():
        first = items[:, : min(rankings.k)]
        counts[system] = np.bincount(first[first > 0], minlength=num_items)
    return {name: _shares(count[order], ranks) for name, count in counts.items()}


def _cut_offs(asked: tuple[int, ...]) -> tuple[int, ...]:
    most = max(asked)
    few = np.geomspace(_FIRST_CUT_OFFS, max(most, _FIRST_CUT_OFFS), _CUT_OFFS - _FIRST_CUT_OFFS).round().astype(int)
    found = {*range(1, _FIRST_CUT_OFFS + 1), *few.tolist(), *asked}
    return tuple(sorted(k for k in found if k <= most))


def _shares(counts: npt.NDArray[np.int64], ranks: npt.NDArray[np.int64]) -> Curve:
    total = counts.sum()
    if not total:
        return Curve(x=(), y=())
    return Curve(x=tuple(ranks.tolist()), y=tuple((np.cumsum(counts)[ranks - 1] / total).round(6).tolist()))
