"""What single users have met, and who has met single items: the rows of a few ids, split by split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsys_cli.features.schema import Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions
from recsys_cli.workspace import PreparedData

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Met:
    """That a user met an item.

    Attributes:
        user_idx: Encoded user.
        item_idx: Encoded item.
        label: The main label.
        time: When, in the units of the data; None where it has no times.
        split: Which split the row is in.
    """

    user_idx: int
    item_idx: int
    label: float
    time: int | None
    split: str


@dataclass(frozen=True)
class Splits:
    """The rows that happened, by split, without those that were drawn."""

    rows: dict[str, Interactions]

    @classmethod
    def read(cls, data: PreparedData) -> Splits:
        """Read the splits that have rows, with times."""
        return cls({s: read_interactions(data, s, times=True).met() for s in SPLITS if data.rows(s)})

    def of(self, role: Role, encoded: int) -> dict[str, Interactions]:
        """Return the rows of one user or one item, by split."""
        return {
            split: rows.chosen((rows.user_idx if role is Role.USER else rows.item_idx) == encoded)
            for split, rows in self.rows.items()
        }


def newest_first(found: dict[str, Interactions], splits: Sequence[str]) -> list[Met]:
    """Return the rows of some splits one by one, the newest first; in the data's order where it has no times."""
    rows = [_one(found[split], split, row) for split in splits if split in found for row in range(len(found[split]))]
    return sorted(rows, key=lambda met: -(met.time or 0))


def num_positive(rows: Interactions) -> int:
    """Return how many rows have the label 1."""
    return int(np.count_nonzero(rows.labels > 0.5))


def _one(rows: Interactions, split: str, row: int) -> Met:
    time = None if rows.times is None else int(rows.times[row])
    return Met(int(rows.user_idx[row]), int(rows.item_idx[row]), float(rows.labels[row]), time, split)
