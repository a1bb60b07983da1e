"""Example users of the report: history, recommendations and ground truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.held_out import Ints
from recsys_cli.evaluation.names import IdNames, Interaction, Item, find_ground_truth, newest_first
from recsys_cli.evaluation.new_users import SplitByUser
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL
from recsys_cli.evaluation.task import positive_in_words
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import Schema
from recsys_cli.interactions import Interactions
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


def example_users(rankings: Rankings, data: PreparedData, names: IdNames, config: EvaluateConfig) -> list[ExampleUser]:
    """Return example users of an evaluation; none without rankings."""
    if not rankings.systems or not len(rankings.users):
        return []
    by_user = SplitByUser.read(data, rankings.split, config)
    ids = by_user.new.ids(rankings.users, rankings.user_hashes)
    return sample_users(rankings, by_user.history, by_user.ground_truth, names, config, ids=ids)


def sample_users(
    rankings: Rankings, history: Interactions, held_out: Interactions, names: IdNames, config: EvaluateConfig,
    *, ids: Ints | None = None,
) -> list[ExampleUser]:  # fmt: skip
    """Return a sample of the ranked users, equal for all runs with this seed on any prepared data.

    `ids` (U,) are the ids of the ranked users in the interactions; None for those of the rankings.
    """
    ids = rankings.users if ids is None else ids
    order = np.argsort(hash_counters(rankings.user_hashes, mix(config.seed, _SHOWN)), kind="stable")[:NUM_USERS]
    parts = {"before": history, rankings.split: held_out}
    return [
        _user(
            row, {name: part.chosen(part.user_idx == ids[row]) for name, part in parts.items()}, rankings, names, config
        )
        for row in order.tolist()
    ]


def when(row: Interaction, schema: Schema) -> str:
    """Return the day of an interaction; empty in data without times."""
    seconds = schema.seconds(row.time)
    return "" if seconds is None else day(seconds)


def _user(
    row: int, interactions: dict[str, Interactions], rankings: Rankings, names: IdNames, config: EvaluateConfig
) -> ExampleUser:
    before = newest_first(interactions, ("before",))
    ranks = {int(item): rank for rank, item in enumerate(rankings.items[MODEL][row], start=1) if item}
    hits = dict(zip(rankings.items[MODEL][row].tolist(), rankings.hits[MODEL][row].tolist(), strict=True))
    ground_truth = find_ground_truth(interactions, (rankings.split,), before, config)
    ground_truth.sort(key=lambda one: ranks.get(one.item_idx, len(ranks) + 1))
    num_positive = sum(one.is_positive for one in before)
    positive = positive_in_words(interactions["before"].mean)
    return ExampleUser(
        name=names.ranked_user(rankings, row),
        rows=f"History: {len(before):,} interactions, {num_positive:,} of them with {positive}. "
        f"Ground truth: {rankings.num_relevant[row]:,}, of which {sum(hits.values())} in the top {len(ranks)}",
        history=[_line(names.item(r.item_idx), when(r, names.schema), is_marked=r.is_positive) for r in before[:_MOST]],
        recommended=[
            _line(names.item(item), f"{rank}", is_marked=hits[item]) for item, rank in list(ranks.items())[:_MOST]
        ],
        ground_truth=[
            _line(names.item(item), f"rank {ranks[item]}" if item in ranks else "–", is_marked=item in ranks)
            for item in [one.item_idx for one in ground_truth[:_MOST]]
        ],
    )


def _line(item: Item, note: str = "", *, is_marked: bool) -> ListedItem:
    kind = " · ".join(", ".join(values) for values in item.features.values() if values)
    return ListedItem(item.name, kind, note, is_marked)
