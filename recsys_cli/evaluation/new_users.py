"""Cold items: rows of the joined item table that are absent from train, and candidates by their table row.

Models never see these rows as ids: they get the shared id of cold items, and the item's own features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.held_out import (
    Hashes,
    Ints,
    candidate_items,
    choose_targets,
    is_relevant,
    row_hashes,
    sample_users,
    value_hashes,
)
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.parquet import read_parquet
from recsys_cli.features.schema import FIRST, UNSEEN, Role
from recsys_cli.interactions import Interactions
from recsys_cli.loader.interactions import read_impressions, read_interactions, read_user_hashes, read_user_rows
from recsys_cli.workspace import PreparedData


@dataclass(frozen=True)
class ColdItems:
    """The cold items of prepared data: `number` table rows from `first` on; encoded ids are below it.

    There are none without a joined item table, or if all its items are in train. Those of `gone`, counted from `first`, are
    forgotten.
    """

    first: int
    number: int
    gone: tuple[int, ...] = ()

    @classmethod
    def of(cls, data: PreparedData) -> ColdItems:
        """Read the number of cold keys of the item column."""
        column = data.schema.only(Role.ITEM)
        path = data.cold_keys(column.name)
        first = int(column.cardinality or 0)
        return cls.listed(first, read_parquet(path, ["value"])["value"]) if path.is_file() else cls(first, 0)

    @classmethod
    def listed(cls, first: int, keys: pa.Array | pa.ChunkedArray) -> ColdItems:
        """Return the cold items of raw keys; null is forgotten."""
        return cls(first, len(keys), tuple(pc.indices_nonzero(keys.is_null()).to_pylist()) if keys.null_count else ())

    @property
    def rows(self) -> Ints:
        """Their table rows, without the forgotten ones."""
        return self.first + np.delete(np.arange(self.number), self.gone)

    def candidates(self, train: Interactions) -> Ints:
        """Return the catalog: items of train in tie-breaking order, then the cold items."""
        return np.concatenate([candidate_items(self.hidden(train), num_items=self.first), self.rows])

    def among(self, item_idx: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Return a mask of cold items."""
        return item_idx >= self.first

    def hidden(self, rows: Interactions) -> Interactions:
        """Return rows as models may see them."""
        cold = self.among(rows.item_idx)
        return replace(rows, item_idx=np.where(cold, np.int32(UNSEEN), rows.item_idx)) if cold.any() else rows


HISTORY = 0.8
"""Share of a user's rows used as fold-in history."""
_ORDER = 19


def fold_in(
    rows: Interactions, *, users: Hashes, items: Hashes, seed: int, targets: int | Literal["latest"] | None = None
) -> tuple[Interactions, Interactions]:
    """Split each user's rows into history (the earliest 80 %) and ground truth, or the last `targets` rows.

    `latest`: the ground truth are all rows of the user's latest time.

    Rows of equal time are ordered by row number in the raw input; data without times by a hash of user, item and
    seed. The ground truth of n rows has max(1, round(n / 5)) rows. `users` and `items` are hashes by id.
    """
    order = _ordered(rows, users=users, items=items, seed=seed)
    lengths = np.unique(rows.user_idx, return_counts=True)[1]
    if targets == "latest":
        if rows.times is None:
            raise ConfigError(
                "evaluate.fold_in_targets=latest needs times", hint="set features.timestamp, then run recsys etl"
            )
        times, ends = rows.times[order], np.cumsum(lengths) - 1
        is_latest = times == np.repeat(times[ends], lengths)
        return rows.chosen(order[~is_latest]), rows.chosen(order[is_latest])
    num_held_out = np.maximum(1, np.round((1 - HISTORY) * lengths)).astype(np.int64) if targets is None else targets
    position = np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    is_held_out = position >= np.repeat(lengths - num_held_out, lengths)
    return rows.chosen(order[~is_held_out]), rows.chosen(order[is_held_out])


@dataclass(frozen=True)
class NextItems:
    """Each next item of a user as a ranking of its own, with the rows before it as history.

    Attributes:
        history: The rows before each sampled next item.
        ground_truth: The next items; each has its own user id, from `first` on.
        owners: User id of each next item, in order of its own ids; shape (T,).
        hashes: Hash of user and position of each, ascending; shape (T,).
    """

    history: Interactions
    ground_truth: Interactions
    owners: npt.NDArray[np.int64]
    hashes: Hashes


def next_items(rows: Interactions, *, users: Hashes, items: Hashes, first: int, config: EvaluateConfig) -> NextItems:
    """Return all rows but each user's first as rankings, without irrelevant rows and repeated items.

    Only the sample of `evaluate.max_ranking_users` has a history: all would be quadratic in the length of the histories.
    """
    rows = rows.chosen(_ordered(rows, users=users, items=items, seed=config.seed))
    lengths = np.unique(rows.user_idx, return_counts=True)[1]
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    position = np.arange(len(rows)) - starts
    pairs = rows.user_idx.astype(np.int64) * len(items) + rows.item_idx
    is_new = rows.item_idx < FIRST
    is_new[np.unique(pairs, return_index=True)[1]] = True
    targets = np.flatnonzero((position > 0) & is_new & is_relevant(rows, config.relevance))
    hashes = hash_counters(position[targets].astype(np.uint64), users[rows.user_idx[targets]])
    order = np.argsort(hashes, kind="stable")
    targets, hashes = targets[order], hashes[order]

    sampled = sample_users(hashes, config)
    before = position[targets[sampled]]
    offsets = np.arange(before.sum()) - np.repeat(np.cumsum(before) - before, before)
    history = rows.chosen(np.repeat(starts[targets[sampled]], before) + offsets)
    ground_truth = rows.chosen(targets)
    return NextItems(
        replace(history, user_idx=np.repeat(first + sampled, before).astype(np.int32)),
        replace(ground_truth, user_idx=np.arange(first, first + len(targets), dtype=np.int32)),
        ground_truth.user_idx.astype(np.int64),
        hashes,
    )


def _ordered(rows: Interactions, *, users: Hashes, items: Hashes, seed: int) -> npt.NDArray[np.intp]:
    if rows.times is not None:
        return rows.chronological()
    chance = hash_counters(items[rows.item_idx], hash_counters(users[rows.user_idx], mix(seed, _ORDER)))
    return np.lexsort((chance, rows.user_idx))


_Id = TypeVar("_Id", bound="np.integer[Any]")


@dataclass(frozen=True)
class NewUsers:
    """The cold-start users of a split.

    Attributes:
        hashes: Hash of each user, ascending, in order of ids; shape (S,).
        table_rows: Row of each in the joined user table, -1 without one; shape (S,). None if no user has one.
        owners: With a ranking for each next item: user number of each ranking, whose ids follow those of the users; shape (T,).
    """

    first: int
    hashes: Hashes
    table_rows: npt.NDArray[np.int64] | None = None
    owners: npt.NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls, rows: Interactions, hashes: Hashes | None, *, first: int, table_rows: npt.NDArray[np.int32] | None = None
    ) -> NewUsers:
        """Return the cold-start users of the rows of a split; none without hashes, as in data of an earlier version.

        Ids from `first` on, in `table_rows` as well, are not those of train.
        """
        unknown = rows.user_idx == UNSEEN
        distinct, first_rows = np.unique(
            np.empty(0, np.uint64) if hashes is None else hashes[unknown], return_index=True
        )
        if table_rows is None or not len(distinct):
            return cls(first, distinct)
        of_users = table_rows[unknown][first_rows].astype(np.int64)
        return cls(first, distinct, np.where(of_users >= first, of_users, -1))

    def __len__(self) -> int:
        return len(self.hashes)

    def named(self, rows: Interactions, hashes: Hashes | None) -> Interactions:
        """Return rows of any split with the ids of these users."""
        if hashes is None or not len(self):
            return rows
        unknown = np.flatnonzero(rows.user_idx == UNSEEN)
        indices = np.minimum(np.searchsorted(self.hashes, hashes[unknown]), len(self) - 1)
        is_new = self.hashes[indices] == hashes[unknown]
        users = rows.user_idx.copy()
        users[unknown[is_new]] = self.first + indices[is_new]
        return replace(rows, user_idx=users)

    def hidden(self, rows: Interactions) -> Interactions:
        """Return rows as models may see them."""
        return replace(rows, user_idx=self.hidden_ids(rows.user_idx)) if self.among(rows.user_idx).any() else rows

    def hidden_ids(self, user_idx: npt.NDArray[_Id]) -> npt.NDArray[_Id]:
        """Return ids as in the data: 2 for each of these users."""
        return np.where(self.among(user_idx), user_idx.dtype.type(UNSEEN), user_idx)

    def among(self, user_idx: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
        """Return a mask of these users."""
        return user_idx >= self.first

    def rows_of(self, user_idx: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the joined table's row of some of these users, -1 without one; both (U,)."""
        return np.full(len(user_idx), -1) if self.table_rows is None else self.table_rows[user_idx - self.first]

    def ids(self, user_idx: npt.NDArray[np.int64], hashes: Hashes) -> npt.NDArray[np.int64]:
        """Return ids of users (U,) from ids and hashes of `Rankings`."""
        start = 0 if self.owners is None else len(self) - len(self.owners)
        return np.where(user_idx == UNSEEN, self.first + start + np.searchsorted(self.hashes[start:], hashes), user_idx)

    def at_each(self, found: NextItems) -> NewUsers:
        """Return these users, followed by a ranking for each of their next items."""
        owners = found.owners - self.first
        rows = None if self.table_rows is None else np.concatenate([self.table_rows, self.table_rows[owners]])
        return NewUsers(self.first, np.concatenate([self.hashes, found.hashes]), rows, owners)

    def owners_of(self, user_idx: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Return the user number of each ranking (U,); None for one ranking per user."""
        if self.owners is None:
            return None
        return self.owners[user_idx - self.first - (len(self) - len(self.owners))]


@dataclass(frozen=True)
class SplitByUser:
    """The rows of a split and the interactions before it, sampled negatives included; each user has a distinct id.

    After a split by user, no interactions precede the split: the first part of each user's rows is the history, the
    rest the ground truth (see `fold_in`).

    Attributes:
        before: Interactions before the split: train, plus valid for test.
        history: User histories: `before`, with the rows before the targets of `evaluate.targets`; or after a split by user
            the first part of their rows.
        ground_truth: Interactions of the split, or its targets.
        users: Hash of each user id's value, cold-start users included.
        items: Hash of each item id's value, cold items included.
        cold: Cold items of the joined table; rows of the splits contain them.
        num_folded: Number of users after a split by user; 0 for other splits.
        impressions: Number of each row's impression, see `read_impressions`; shape (N,).
    """

    train: Interactions
    rows: Interactions
    before: Interactions
    history: Interactions
    ground_truth: Interactions
    new: NewUsers
    users: Hashes
    items: Hashes
    cold: ColdItems
    num_folded: int
    impressions: npt.NDArray[np.int32] | None = None

    @classmethod
    def read(cls, data: PreparedData, split: str, config: EvaluateConfig) -> SplitByUser:
        """Read the rows of a split and the interactions before it; see `fold_in` for the options of the evaluation."""
        column = data.schema.only(Role.USER)
        of_users, items = value_hashes(data, column), row_hashes(data, data.schema.only(Role.ITEM))
        names = ("train", "valid", "test") if split == "test" else ("train", "valid")
        read = {
            name: (read_interactions(data, name, times=True, cold_items=True), read_user_hashes(data, name))
            for name in names
        }
        new = NewUsers.of(*read[split], first=len(of_users), table_rows=read_user_rows(data, split))
        train, *between, rows = (new.named(*read[name]) for name in names)
        before = train.observed()
        for other in between:
            interactions = other.observed()
            if config.candidates == "given":  # the other rows are candidates without an interaction
                interactions = interactions.chosen(is_relevant(interactions, config.relevance))
            before = before + interactions
        users = np.concatenate([of_users, new.hashes])
        history, ground_truth, num_folded = before, rows.observed(), 0
        is_by_user = _is_by_user(rows, before, new)
        _check_targets(config, split, has_times=rows.times is not None, is_by_user=is_by_user)
        if is_by_user:
            new_rows = ground_truth.chosen(new.among(ground_truth.user_idx))
            num_folded, targets = len(new), config.fold_in_targets
            if targets == "each":
                found = next_items(new_rows, users=users, items=items, first=len(users), config=config)
                history, ground_truth, new = found.history, found.ground_truth, new.at_each(found)
                users = np.concatenate([users, found.hashes])
            else:
                history, ground_truth = fold_in(new_rows, users=users, items=items, seed=config.seed, targets=targets)
        elif config.targets != "all":
            relevant = is_relevant(ground_truth, config.relevance)
            earlier, ground_truth = choose_targets(
                ground_truth, relevant, config.targets, users=users, seed=config.seed
            )
            history = before + earlier
        cold, impressions = ColdItems.of(data), read_impressions(data, split)
        return cls(train, rows, before, history, ground_truth, new, users, items, cold, num_folded, impressions)

    @cached_property
    def candidates(self) -> Ints:
        """The catalog, in tie-breaking order; shape (I,)."""
        return self.cold.candidates(self.train.observed())

    def hidden(self, rows: Interactions) -> Interactions:
        """Return rows as models may see them."""
        return self.cold.hidden(self.new.hidden(rows))

    @property
    def earlier(self) -> Interactions:
        """Interactions that a row of the split may see up to its own time: those before the split, and those of the split.

        Without the latter if the split is not in order of time, as a random one: there, labels of the split are unknown.
        """
        rows = self.before + self.rows.observed() if self._is_in_order else self.before
        return self.cold.hidden(rows)

    @property
    def _is_in_order(self) -> bool:
        """Whether no interaction before the split is later than the first row of the same user in the split."""
        rows, before = self.rows.observed(), self.before
        if rows.times is None or before.times is None:
            return False
        first = np.full(len(self.users), np.inf)
        np.minimum.at(first, rows.user_idx, rows.times)
        return bool((before.times <= first[before.user_idx]).all())


def _check_targets(config: EvaluateConfig, split: str, *, has_times: bool, is_by_user: bool) -> None:
    if config.fold_in_targets is not None and not is_by_user:
        raise ConfigError(
            f"evaluate.fold_in_targets={config.fold_in_targets} needs cold-start users, and {split} has users of train",
            hint="set evaluate.fold_in_targets=null, or split.method=user or session; after a split by time "
            "evaluate.targets chooses the targets",
        )
    if config.targets == "all":
        return
    if is_by_user:
        raise ConfigError(
            f"evaluate.targets={config.targets} needs users of train, and all users of {split} are cold-start users",
            hint="set evaluate.targets=all, and choose targets by evaluate.fold_in_targets",
        )
    if not has_times:
        raise ConfigError(
            f"evaluate.targets={config.targets} needs times", hint="set features.timestamp, then run recsys etl"
        )


def _is_by_user(rows: Interactions, before: Interactions, new: NewUsers) -> bool:
    all_new = not ((rows.user_idx >= FIRST) & ~new.among(rows.user_idx)).any()
    return len(new) > 0 and all_new and not new.among(before.user_idx).any()
