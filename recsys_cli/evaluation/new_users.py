"""Users whom train does not know, told apart, and what was known of everybody before a split.

Rows of such users have the id 2 (unseen), all of them, and beside it a hash of the user. For the time of an evaluation each user
gets an id behind those of the data. It means nothing to a model, so a model never sees it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.cold_items import ColdItems
from recsys_cli.evaluation.fingerprint import Hashes, row_hashes, value_hashes
from recsys_cli.evaluation.fold_in import fold_in
from recsys_cli.features.schema import FIRST, UNSEEN, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_interactions, read_user_hashes, read_user_rows
from recsys_cli.workspace import PreparedData

_Id = TypeVar("_Id", bound="np.integer[Any]")


@dataclass(frozen=True)
class NewUsers:
    """The users of a split who have no id of their own.

    Attributes:
        first: The id of the first of them; those of the data are below it.
        hashes: Hash of each, ascending, in the order of their ids; shape (S,).
        table_rows: The row of each in the joined table of users, -1 of one who has none; shape (S,). None where nobody has one.
    """

    first: int
    hashes: Hashes
    table_rows: npt.NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        rows: Interactions,
        hashes: Hashes | None,
        *,
        first: int,
        table_rows: npt.NDArray[np.int32] | None = None,
        num_ids: int = 0,
    ) -> NewUsers:
        """Return the users of some rows without an id; nobody where the rows have no hashes, as from an earlier version.

        Args:
            rows: The split, drawn rows too.
            hashes: What `read_user_hashes` returned.
            first: The ids of the data are below it.
            table_rows: What `read_user_rows` returned.
            num_ids: How many of a table's rows are those of ids.
        """
        unknown = rows.user_idx == UNSEEN
        found, places = np.unique(np.empty(0, np.uint64) if hashes is None else hashes[unknown], return_index=True)
        if table_rows is None or not len(found):
            return cls(first, found)
        of_users = table_rows[unknown][places].astype(np.int64)
        return cls(first, found, np.where(of_users >= num_ids, of_users, -1))

    def __len__(self) -> int:
        return len(self.hashes)

    def named(self, rows: Interactions, hashes: Hashes | None) -> Interactions:
        """Return rows with the ids of these users; the rows of other users without an id stay as they are.

        Args:
            rows: Of any split.
            hashes: What `read_user_hashes` returned for it.
        """
        if hashes is None or not len(self):
            return rows
        unknown = np.flatnonzero(rows.user_idx == UNSEEN)
        places = np.minimum(np.searchsorted(self.hashes, hashes[unknown]), len(self) - 1)
        there = self.hashes[places] == hashes[unknown]
        users = rows.user_idx.copy()
        users[unknown[there]] = self.first + places[there]
        return replace(rows, user_idx=users)

    def hidden(self, rows: Interactions) -> Interactions:
        """Return rows as they are in the data, where these users have the id 2: what a model may look at."""
        return replace(rows, user_idx=self.hidden_ids(rows.user_idx)) if self.among(rows.user_idx).any() else rows

    def hidden_ids(self, user_idx: npt.NDArray[_Id]) -> npt.NDArray[_Id]:
        """Return ids as they are in the data, 2 for each of these users."""
        return np.where(self.among(user_idx), user_idx.dtype.type(UNSEEN), user_idx)

    def among(self, user_idx: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Return which ids are theirs."""
        return user_idx >= self.first

    def rows_of(self, user_idx: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the row of each of some of these users in the joined table, -1 where there is none; both (U,)."""
        return np.full(len(user_idx), -1) if self.table_rows is None else self.table_rows[user_idx - self.first]

    def ids(self, user_idx: npt.NDArray[np.int64], hashes: Hashes) -> npt.NDArray[np.int64]:
        """Return the ids of users who were kept as rankings keep them: by the id of the data, or as 2 and a hash; both (U,)."""
        return np.where(user_idx == UNSEEN, self.first + np.searchsorted(self.hashes, hashes), user_idx)


@dataclass(frozen=True)
class SplitByUser:
    """The rows of a split and what was known before it, with every user told apart.

    After a split by user nothing is known before: there the first part of each user's rows is history, and the rest is to be
    found (see `fold_in`).

    Attributes:
        train: Its rows, drawn ones too.
        rows: Those of the split, drawn ones too.
        before: What happened before the split: in train, and at a test in valid.
        history: What describes the users of the split: `before`, or after a split by user the first part of their rows.
        wanted: What happened in the split, or after a split by user the rest.
        new: Whom train does not know.
        users: Hash of each user id's value, those of new users included.
        items: Hash of each item id's value, and of each cold item's.
        cold: The items that train does not know and the joined table has: rows of the splits have them.
        num_folded: Users of a split by user, who are described by a part of their rows; 0 of other splits.
    """

    train: Interactions
    rows: Interactions
    before: Interactions
    history: Interactions
    wanted: Interactions
    new: NewUsers
    users: Hashes
    items: Hashes
    cold: ColdItems
    num_folded: int

    @classmethod
    def read(cls, data: PreparedData, split: str, *, seed: int) -> SplitByUser:
        """Read what belongs to a split.

        Args:
            data: Prepared.
            split: `valid` or `test`.
            seed: Decides what is history after a split by user where rows have no time.
        """
        column = data.schema.only(Role.USER)
        of_users, items = value_hashes(data, column), row_hashes(data, data.schema.only(Role.ITEM))
        names = ("train", "valid", "test") if split == "test" else ("train", "valid")
        read = {
            name: (read_interactions(data, name, times=True, cold_items=True), read_user_hashes(data, name))
            for name in names
        }
        of_table = read_user_rows(data, split)
        new = NewUsers.of(*read[split], first=len(of_users), table_rows=of_table, num_ids=len(of_users))
        train, *between, rows = (new.named(*read[name]) for name in names)
        before = train.observed()
        for other in between:
            before = before + other.observed()
        users = np.concatenate([of_users, new.hashes])
        history, wanted, num_folded = before, rows.observed(), 0
        if _is_by_user(rows, before, new):
            of_new = wanted.chosen(new.among(wanted.user_idx))
            (history, wanted), num_folded = fold_in(of_new, users=users, items=items, seed=seed), len(new)
        return cls(train, rows, before, history, wanted, new, users, items, ColdItems.of(data), num_folded)

    def hidden(self, rows: Interactions) -> Interactions:
        """Return rows as a model may look at them: users and items that train does not know have the id 2."""
        return self.cold.hidden(self.new.hidden(rows))


def _is_by_user(rows: Interactions, before: Interactions, new: NewUsers) -> bool:
    """Whether nothing is known of any user of a split."""
    nobody_known = not ((rows.user_idx >= FIRST) & ~new.among(rows.user_idx)).any()
    return len(new) > 0 and nobody_known and not new.among(before.user_idx).any()
