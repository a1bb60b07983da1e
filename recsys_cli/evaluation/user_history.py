"""Interactions of single users and items, split by split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recsys_cli.evaluation.held_out import is_relevant
from recsys_cli.features.schema import FIRST, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.workspace import PreparedData

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Interaction:
    """One interaction of a user with an item.

    Attributes:
        item_idx: Encoded item; of a cold item its row of the joined table, if it has one.
        is_positive: Label 1; for numeric labels, a label above the mean of train.
        time: Timestamp in the unit of the data; None in data without times.
        row_number: Row number in the raw input, which orders rows of equal time; 0 if unavailable.
    """

    item_idx: int
    label: float
    is_positive: bool
    time: float | None
    split: str
    row_number: int = 0


@dataclass(frozen=True)
class SplitInteractions:
    """Interactions by split, without sampled negatives."""

    rows: dict[str, Interactions]

    def of(self, role: Role, encoded: int) -> dict[str, Interactions]:
        """Return the rows of one user or one item, by split."""
        return {
            split: rows.chosen((rows.user_idx if role is Role.USER else rows.item_idx) == encoded)
            for split, rows in self.rows.items()
        }


def rows_of(data: PreparedData, role: Role, encoded: int) -> dict[str, Interactions]:
    """Read the interactions of one user or item with times, by split; splits without rows are left out."""
    only = {data.schema.only(role).name: encoded}
    return {
        split: read_interactions(data, split, times=True, only=only, cold_items=True).observed()
        for split in SPLITS
        if data.rows(split)
    }


def newest_first(by_split: dict[str, Interactions], splits: Sequence[str]) -> list[Interaction]:
    """Return the rows of some splits by falling (time, row number); in file order in data without times."""
    rows = (row for split in splits if split in by_split for row in _one_by_one(by_split[split], split))
    return sorted(rows, key=lambda row: (-(row.time or 0), -row.row_number))


def find_ground_truth(
    by_split: dict[str, Interactions], splits: Sequence[str], before: Sequence[Interaction], *, relevant: str | float
) -> list[Interaction]:
    """Return the ground truth of a user's ranking without the items of `before`, by the rules of `hold_out`.

    One row for each item, and one for each interaction with an item without an id, which no system can recommend.
    `relevant` is `evaluate.relevance`.
    """
    seen = {row.item_idx for row in before if row.item_idx >= FIRST}
    rows = {
        split: by_split[split].chosen(is_relevant(by_split[split], relevant)) for split in splits if split in by_split
    }
    relevant_rows = [row for row in newest_first(rows, splits) if row.item_idx not in seen]
    unknown = [row for row in relevant_rows if row.item_idx < FIRST]
    return [*{row.item_idx: row for row in relevant_rows if row.item_idx >= FIRST}.values(), *unknown]


def _one_by_one(rows: Interactions, split: str) -> Iterator[Interaction]:
    times = [None] * len(rows) if rows.times is None else rows.times.tolist()
    numbers = [0] * len(rows) if rows.row_numbers is None else rows.row_numbers.tolist()
    columns = rows.item_idx.tolist(), rows.labels.tolist(), rows.positive.tolist(), times, numbers
    for item_idx, label, is_positive, time, number in zip(*columns, strict=True):
        yield Interaction(item_idx, label, is_positive, time, split, number)
