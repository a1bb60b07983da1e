"""A few users as people: what they met, what they are recommended, and what should have been found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys_cli.config import EvaluateConfig
from recsys_cli.evaluation.held_out import Ints
from recsys_cli.evaluation.names import IdNames, Item
from recsys_cli.evaluation.protocol_text import positive_in_words
from recsys_cli.evaluation.rankings import Rankings
from recsys_cli.evaluation.result import MODEL
from recsys_cli.evaluation.user_history import Interaction, SplitInteractions, newest_first, to_find
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import Role
from recsys_cli.page import day

NUM_USERS = 5
_SHOWN = 14
_MOST = 10


@dataclass(frozen=True)
class ListedItem:
    """An item in a list of a user's.

    Attributes:
        title: What it is called.
        kind: What it is, such as its genres.
        note: What the list says of it: when it was met, or at which place it is recommended.
        is_marked: Whether it is one of those to look for: liked, or a hit.
    """

    title: str
    kind: str
    note: str = ""
    is_marked: bool = False


@dataclass(frozen=True)
class ExampleUser:
    """What the page shows of a user; lists hold the first few.

    Attributes:
        name: Raw id, or of one without an id the beginning of a hash.
        rows: How much there is of the user, in words.
        history: What was met before, the newest first; liked ones are marked.
        recommended: The model's first places; hits are marked.
        wanted: What should be found, and where the model has it; what was found is marked.
    """

    name: str
    rows: str
    history: list[ListedItem]
    recommended: list[ListedItem]
    wanted: list[ListedItem]


def sample_users(
    rankings: Rankings, splits: SplitInteractions, names: IdNames, config: EvaluateConfig, *, ids: Ints | None = None
) -> list[ExampleUser]:
    """Return a few of the users that were ranked for; the same ones for every run with this seed, whatever was prepared.

    Args:
        rankings: Of the model, first of all.
        splits: What users met.
        names: What things are called.
        config: Which rows should be found; its seed decides who is shown.
        ids: The ids that the ranked users have in these splits, shape (U,); None for those that the rankings have.
    """
    ids = rankings.users if ids is None else ids
    order = np.argsort(hash_counters(rankings.user_hashes, mix(config.seed, _SHOWN)), kind="stable")
    return [_user(int(row), int(ids[row]), rankings, splits, names, config) for row in order[:NUM_USERS]]


def kind_of(item: Item) -> str:
    """Say what an item is, in one line."""
    return " · ".join(", ".join(values) for values in item.features.values() if values)


def when(met: Interaction) -> str:
    """Write the day of a row; nothing where the data has no times."""
    return "" if met.time is None else day(met.time)


def _user(
    row: int, user_idx: int, rankings: Rankings, splits: SplitInteractions, names: IdNames, config: EvaluateConfig
) -> ExampleUser:
    found = splits.of(Role.USER, user_idx)
    before = newest_first(found, ("train", "valid") if rankings.split == "test" else ("train",))
    places = {int(item): place for place, item in enumerate(rankings.items[MODEL][row], start=1) if item}
    hits = dict(zip(rankings.items[MODEL][row].tolist(), rankings.hits[MODEL][row].tolist(), strict=True))
    wanted = to_find(found, (rankings.split,), before, relevant=config.relevance)
    wanted.sort(key=lambda one: places.get(one.item_idx, len(places) + 1))
    liked = sum(one.is_positive for one in before)
    how = positive_in_words(next(iter(found.values())).mean)
    return ExampleUser(
        name=names.ranked_user(rankings, row),
        rows=f"{len(before):,} rows before, {liked:,} of them with {how}; {rankings.num_relevant[row]:,} to be found, "
        f"of which the first {len(places)} places hold {sum(hits.values())}",
        history=[_line(names.item(m.item_idx), when(m), is_marked=m.is_positive) for m in before[:_MOST]],
        recommended=[
            _line(names.item(item), f"{place}", is_marked=hits[item]) for item, place in list(places.items())[:_MOST]
        ],
        wanted=[_wanted(names.item(m.item_idx), places.get(m.item_idx)) for m in wanted[:_MOST]],
    )


def _line(item: Item, note: str = "", *, is_marked: bool) -> ListedItem:
    return ListedItem(item.name, kind_of(item), note, is_marked)


def _wanted(item: Item, place: int | None) -> ListedItem:
    return _line(item, "–" if place is None else f"place {place}", is_marked=place is not None)
