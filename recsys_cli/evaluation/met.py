"""What single users have met, and who has met single items: the rows of a few ids, split by split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsys_cli.features.schema import FIRST, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.workspace import PreparedData

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Met:
    """That a user met an item.

    Attributes:
        item_idx: Encoded item.
        label: The main label.
        time: When, in the units of the data; None where it has no times.
        split: Which split the row is in.
    """

    item_idx: int
    label: float
    time: int | None
    split: str


@dataclass(frozen=True)
class Splits:
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
    return {split: read_interactions(data, split, times=True, only=only).met() for split in SPLITS if data.rows(split)}


def newest_first(found: dict[str, Interactions], splits: Sequence[str]) -> list[Met]:
    """Return the rows of some splits one by one, the newest first; in the data's order where it has no times."""
    rows = [_one(found[split], split, row) for split in splits if split in found for row in range(len(found[split]))]
    return sorted(rows, key=lambda met: -(met.time or 0))


def to_find(held_out: Sequence[Met], before: Sequence[Met], *, relevant: str) -> list[Met]:
    """Return what a ranking for a user should find: as `hold_out` counts it.

    Args:
        held_out: The user's rows of the split.
        before: Those that the user had met before, which are not to be found again.
        relevant: As `evaluate.relevant`: `positive` for rows with label 1, or `all`.

    Returns:
        A row for each item; for each row of items without an id of their own, which nothing can find.
    """
    seen = {met.item_idx for met in before if met.item_idx >= FIRST}
    wanted = [met for met in held_out if (relevant == "all" or met.label > 0.5) and met.item_idx not in seen]
    unknown = [met for met in wanted if met.item_idx < FIRST]
    return [*{met.item_idx: met for met in wanted if met.item_idx >= FIRST}.values(), *unknown]


def num_positive(rows: Interactions) -> int:
    """Return how many rows have the label 1."""
    return int(np.count_nonzero(rows.labels > 0.5))


def _one(rows: Interactions, split: str, row: int) -> Met:
    time = None if rows.times is None else int(rows.times[row])
    return Met(int(rows.item_idx[row]), float(rows.labels[row]), time, split)
