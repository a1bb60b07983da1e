"""What single users have met, and who has met single items: the rows of a few ids, split by split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from recsys_cli.evaluation.held_out import is_relevant
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.workspace import PreparedData

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Interaction:
    """That a user met an item.

    Attributes:
        item_idx: Encoded item; of one that train does not know the row of the joined table, where it has one.
        label: The main label.
        is_positive: Whether it is 1, or where it is a number above the mean of train.
        time: When, in the unit of the data; None where it has no times.
        split: Which split the row is in.
        row_number: The row's number in the raw input, which orders rows of one time; 0 where it is not known.
    """

    item_idx: int
    label: float
    is_positive: bool
    time: float | None
    split: str
    row_number: int = 0


@dataclass(frozen=True)
class SplitInteractions:
    """The rows that happened, by split, without those that were drawn."""

    rows: dict[str, Interactions]

    def of(self, role: Role, encoded: int) -> dict[str, Interactions]:
        """Return the rows of one user or one item, by split."""
        return {
            split: rows.chosen((rows.user_idx if role is Role.USER else rows.item_idx) == encoded)
            for split, rows in self.rows.items()
        }


def rows_of(data: PreparedData, role: Role, encoded: int) -> dict[str, Interactions]:
    """Read the rows of one user or one item that happened, with times, by the splits that have rows; no others are kept."""
    only = {data.schema.only(role).name: encoded}
    return {
        split: read_interactions(data, split, times=True, only=only, cold_items=True).observed()
        for split in SPLITS
        if data.rows(split)
    }


def newest_first(found: dict[str, Interactions], splits: Sequence[str]) -> list[Interaction]:
    """Return the rows of some splits one by one, the newest by (time, row number) first; as they stand where there are no times."""
    rows = (met for split in splits if split in found for met in _one_by_one(found[split], split))
    return sorted(rows, key=lambda met: (-(met.time or 0), -met.row_number))


def to_find(
    found: dict[str, Interactions], splits: Sequence[str], before: Sequence[Interaction], *, relevant: str | float
) -> list[Interaction]:
    """Return what a ranking for a user should find: as `hold_out` counts it.

    Args:
        found: The user's rows, by split.
        splits: Those that are held out.
        before: Those that the user had met before, which are not to be found again.
        relevant: As `evaluate.relevance`: `positive`, `all`, or the least label.

    Returns:
        A row for each item; for each row of items without an id of their own, which nothing can find.
    """
    seen = {met.item_idx for met in before if met.item_idx >= FIRST}
    rows = {split: found[split].chosen(is_relevant(found[split], relevant)) for split in splits if split in found}
    wanted = [met for met in newest_first(rows, splits) if met.item_idx not in seen]
    unknown = [met for met in wanted if met.item_idx < FIRST]
    return [*{met.item_idx: met for met in wanted if met.item_idx >= FIRST}.values(), *unknown]


def num_positive(rows: Interactions) -> int:
    """Return how many rows are for the item: see `Interactions.positive`."""
    return int(np.count_nonzero(rows.positive))


def _one_by_one(rows: Interactions, split: str) -> Iterator[Interaction]:
    times = [None] * len(rows) if rows.times is None else rows.times.tolist()
    numbers = [0] * len(rows) if rows.row_numbers is None else rows.row_numbers.tolist()
    columns = rows.item_idx.tolist(), rows.labels.tolist(), rows.positive.tolist(), times, numbers
    for item_idx, label, is_positive, time, number in zip(*columns, strict=True):
        yield Interaction(item_idx, label, is_positive, time, split, number)
