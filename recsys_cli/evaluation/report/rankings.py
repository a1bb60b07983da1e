"""Rankings in the report: metrics over the cut-off, the popularity of recommended items, and example users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.held_out import Ints, choose_targets, is_relevant
from recsys_cli.evaluation.intervals import ranking_estimates
from recsys_cli.evaluation.names import IdNames, Interaction, Item, SplitInteractions, find_ground_truth, newest_first
from recsys_cli.evaluation.new_users import ColdItems, SplitByUser
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL, Curve, Estimate
from recsys_cli.evaluation.task import positive_in_words
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import Role, Schema
from recsys_cli.interactions import Interactions
from recsys_cli.metrics import Hits
from recsys_cli.page import day
from recsys_cli.workspace import PreparedData

NUM_USERS = 5
_SHOWN = 14
_MOST = 10


@dataclass(frozen=True)
class ListedItem:
    """An item in a list, with its features as `kind` and a day or rank as `note`; positives and hits are marked."""

    title: str
    kind: str
    note: str = ""
    is_marked: bool = False


@dataclass(frozen=True)
class ExampleUser:
    """An example user; lists are limited to the first items, and positives and hits are marked."""

    name: str
    rows: str
    history: list[ListedItem]
    recommended: list[ListedItem]
    ground_truth: list[ListedItem]


def sample_users(
    rankings: Rankings, splits: SplitInteractions, names: IdNames, config: EvaluateConfig, *, ids: Ints | None = None
) -> list[ExampleUser]:
    """Return a sample of the ranked users, equal for all runs with this seed on any prepared data.

    `ids` (U,) are the ids of the ranked users in `splits`; None for those of the rankings.
    """
    ids = rankings.users if ids is None else ids
    order = np.argsort(hash_counters(rankings.user_hashes, mix(config.seed, _SHOWN)), kind="stable")
    return [_user(int(row), int(ids[row]), rankings, splits, names, config) for row in order[:NUM_USERS]]


def kind_of(item: Item) -> str:
    """Return an item's features in one line."""
    return " · ".join(", ".join(values) for values in item.features.values() if values)


def when(row: Interaction, schema: Schema) -> str:
    """Return the day of an interaction; empty in data without times."""
    seconds = schema.seconds(row.time)
    return "" if seconds is None else day(seconds)


def _user(
    row: int, user_idx: int, rankings: Rankings, splits: SplitInteractions, names: IdNames, config: EvaluateConfig
) -> ExampleUser:
    interactions = splits.of(Role.USER, user_idx)
    splits_before = ("train", "valid") if rankings.split == "test" else ("train",)
    before = newest_first(interactions, splits_before)
    if config.targets != "all" and rankings.split in interactions:
        rows = interactions[rankings.split]
        hashes = np.full(user_idx + 1, rankings.user_hashes[row])
        earlier, targets = choose_targets(
            rows, is_relevant(rows, config.relevance), config.targets, users=hashes, seed=config.seed
        )
        before = newest_first({**interactions, rankings.split: earlier}, (*splits_before, rankings.split))
        interactions = {**interactions, rankings.split: targets}
    ranks = {int(item): rank for rank, item in enumerate(rankings.items[MODEL][row], start=1) if item}
    hits = dict(zip(rankings.items[MODEL][row].tolist(), rankings.hits[MODEL][row].tolist(), strict=True))
    ground_truth = find_ground_truth(interactions, (rankings.split,), before, config)
    ground_truth.sort(key=lambda one: ranks.get(one.item_idx, len(ranks) + 1))
    num_positive = sum(one.is_positive for one in before)
    positive = positive_in_words(next(iter(interactions.values())).mean)
    return ExampleUser(
        name=names.ranked_user(rankings, row),
        rows=f"History: {len(before):,} interactions, {num_positive:,} of them with {positive}. "
        f"Ground truth: {rankings.num_relevant[row]:,}, of which {sum(hits.values())} in the top {len(ranks)}",
        history=[_line(names.item(r.item_idx), when(r, names.schema), is_marked=r.is_positive) for r in before[:_MOST]],
        recommended=[
            _line(names.item(item), f"{rank}", is_marked=hits[item]) for item, rank in list(ranks.items())[:_MOST]
        ],
        ground_truth=[_held_out_line(names.item(r.item_idx), ranks.get(r.item_idx)) for r in ground_truth[:_MOST]],
    )


def _line(item: Item, note: str = "", *, is_marked: bool) -> ListedItem:
    return ListedItem(item.name, kind_of(item), note, is_marked)


def _held_out_line(item: Item, rank: int | None) -> ListedItem:
    return _line(item, "–" if rank is None else f"rank {rank}", is_marked=rank is not None)


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
