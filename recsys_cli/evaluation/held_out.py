"""The ranking problem of a split, equal for every system."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from recsys_cli.config import EvaluateConfig
from recsys_cli.features.hashing import can_hash, hash_counters, hash_values, mix
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.interactions import Interactions
from recsys_cli.workspace import PreparedData

Ints = npt.NDArray[np.int64]
_SAMPLE = 13


@dataclass(frozen=True)
class Lists:
    """One list of candidate positions for each of U users.

    Attributes:
        values: All lists concatenated; shape (N,).
        offsets: Start of each list, then N; shape (U + 1,).
    """

    values: Ints
    offsets: Ints

    @classmethod
    def of(cls, user: Ints, values: Ints, *, num_users: int) -> Lists:
        """Group values (N,) by user number (N,); each list is ascending without duplicates."""
        width = int(values.max(initial=0)) + 1
        pairs = np.unique(user.astype(np.int64) * width + values)
        return cls(pairs % width, np.searchsorted(pairs, np.arange(num_users + 1) * width))

    @property
    def lengths(self) -> Ints:
        """Length of each list, shape (U,)."""
        return np.diff(self.offsets)

    def before(self, values: npt.NDArray[np.integer]) -> Ints:
        """Return the number of entries in each user's list below values (U, P)."""
        width = int(max(self.values.max(initial=0), values.max(initial=0))) + 2
        first = np.arange(len(self.lengths)) * width
        entries = np.repeat(first, self.lengths) + self.values
        return np.searchsorted(entries, first[:, None] + np.maximum(values, 0)) - self.offsets[:-1, None]

    def block(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """Return the entries of users from start to stop as (user - start, value) pairs, ascending."""
        offsets = self.offsets[start : stop + 1]
        return np.repeat(np.arange(stop - start), np.diff(offsets)), self.values[offsets[0] : offsets[-1]]

    def part(self, start: int, stop: int) -> Lists:
        """Return the lists of users from start to stop."""
        offsets = self.offsets[start : stop + 1]
        return Lists(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])


@dataclass(frozen=True)
class UserBlock:
    """The ranking problem of B users from `start` on, without its candidates; see `HeldOut`."""

    start: int
    user_idx: Ints
    seen: Lists
    relevant: Lists
    sampled: Lists | None
    num_rankable: Ints

    def __repr__(self) -> str:
        return f"{len(self.user_idx):,} users from {self.start:,} on"


@dataclass(frozen=True)
class HeldOut:
    """A ranking problem over U users and I candidates.

    Candidates are in tie-breaking order: more train rows first, then the lower id. A place is a position in it.
    `num_eligible` users have ground truth, U of which are ranked; `num_without` have none. Of the `num_pairs` distinct
    relevant (user, item) pairs of all users, `num_repeated` are in the history too: ground truth only with `ranks_seen`.

    Attributes:
        candidates: Encoded candidates; shape (I,).
        seen: Places of each user's seen items, which are filtered from rankings.
        relevant: Places of each user's ground truth, none of them seen.
        num_relevant: Size of the ground truth, at least 1, with interactions of items outside the candidates; shape
            (U,).
        sampled: Places of the sampled or given candidates without the relevant ones; None in a full ranking.
        num_left_out: Given rows that are neither relevant nor of one of the candidates, and so in no ranking.
        owners: User of each ranking, if users have several; shape (U,). None for one ranking per user.
    """

    user_idx: Ints
    candidates: Ints
    seen: Lists
    relevant: Lists
    num_relevant: Ints
    num_eligible: int
    num_without: int
    sampled: Lists | None = None
    owners: Ints | None = None
    num_pairs: int = 0
    num_repeated: int = 0
    num_left_out: int = 0

    @property
    def num_rankable(self) -> Ints:
        """Number of rankable candidates of each user, shape (U,)."""
        if self.sampled is not None:
            return self.sampled.lengths + self.relevant.lengths
        return len(self.candidates) - self.seen.lengths

    def blocks(self, size: int) -> Iterator[UserBlock]:
        """Yield the users in blocks of a size; none without candidates."""
        num_users, num_rankable = len(self.user_idx), self.num_rankable
        for start in range(0, num_users if len(self.candidates) else 0, size):
            stop = min(start + size, num_users)
            seen, relevant = self.seen.part(start, stop), self.relevant.part(start, stop)
            sampled = None if self.sampled is None else self.sampled.part(start, stop)
            yield UserBlock(start, self.user_idx[start:stop], seen, relevant, sampled, num_rankable[start:stop])

    def by_popularity(self, places: npt.NDArray[np.integer]) -> Ints:
        """Return the rank, from 0, of places (U, P) in the user's ranking by popularity."""
        if self.sampled is not None:
            return self.sampled.before(places) + self.relevant.before(places)
        return places - self.seen.before(places)

    @property
    def num_unreachable(self) -> int:
        """Ground-truth interactions of items outside the candidates."""
        return int(self.num_relevant.sum()) - len(self.relevant.values)


def candidate_items(train: Interactions, *, num_items: int) -> Ints:
    """Return the encoded items with a train row, in tie-breaking order."""
    return by_train_rows(np.bincount(train.item_idx, minlength=num_items))


def by_train_rows(counts: Ints) -> Ints:
    """Return the items with a train row, in tie-breaking order, from the train rows of each encoded item."""
    counts = np.where(np.arange(len(counts)) < FIRST, 0, counts)
    order = np.lexsort((np.arange(len(counts)), -counts))
    return order[: np.count_nonzero(counts)]


def hold_out(
    rows: Interactions,
    history: Interactions,
    *,
    candidates: Ints,
    num_items: int,
    config: EvaluateConfig,
    user_hashes: npt.NDArray[np.uint64] | None = None,
) -> HeldOut:
    """Build the ranking problem of a split: the relevant items and the seen items of each user.

    Only users with an id of their own and at least one relevant item take part. A relevant item comes from a relevant row and,
    without `config.ranks_seen`, is new to its user. Relevant items outside the candidates count as misses in `num_relevant`:
    items with an id once per user, items without an id once per row.

    Args:
        rows: Interactions of the split.
        history: Seen interactions: train, plus valid for test; not filtered with `config.ranks_seen`.
        candidates: Encoded items to rank, from `candidate_items`; shape (I,).
        num_items: Upper bound of the encoded items.
        config: Minimum label of a relevant row; repeats; size and seed of the sample of users.
        user_hashes: Hash of the raw user by encoded user, so that all prepared data of a split have the same sample of
            users; None for a sample by encoded user.
    """
    place_of = _numbering(candidates, size=num_items)
    known = rows.user_idx >= FIRST
    is_held_out = known & is_relevant(rows, config.relevance)
    user, item = rows.user_idx[is_held_out].astype(np.int64), rows.item_idx[is_held_out].astype(np.int64)

    pairs = np.unique(user[item >= FIRST] * num_items + item[item >= FIRST])
    is_repeated = _is_among(pairs, history.user_idx.astype(np.int64) * num_items + history.item_idx)
    kept, history = (pairs, history.chosen(np.arange(0))) if config.ranks_seen else (pairs[~is_repeated], history)
    owners = np.concatenate([kept // num_items, user[item < FIRST]])
    eligible, num_relevant = np.unique(owners, return_counts=True)
    chosen = sample_users(eligible.astype(np.uint64) if user_hashes is None else user_hashes[eligible], config)
    users = eligible[chosen]

    numbers = _numbering(users, size=int(max(history.user_idx.max(initial=0), rows.user_idx.max(initial=0))) + 1)
    return HeldOut(
        user_idx=users,
        candidates=candidates,
        seen=_lists(history.user_idx, place_of[history.item_idx], numbers, num_users=len(users)),
        relevant=_lists(kept // num_items, place_of[kept % num_items], numbers, num_users=len(users)),
        num_relevant=num_relevant[chosen],
        num_eligible=len(eligible),
        num_without=len(np.unique(rows.user_idx[known])) - len(eligible),
        num_pairs=len(pairs),
        num_repeated=int(np.count_nonzero(is_repeated)),
    )


def _is_among(keys: Ints, many: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of ascending keys that are among many others, which are not sorted as in `np.isin`."""
    found = np.zeros(len(keys), dtype=bool)
    if len(keys):
        places = np.minimum(np.searchsorted(keys, many), len(keys) - 1)
        found[places[keys[places] == many]] = True
    return found


def with_given_candidates(held_out: HeldOut, rows: Interactions, relevance: str | float) -> HeldOut:
    """Rank each user's items in the rows of the split, if they are candidates."""
    size = int(max(held_out.candidates.max(initial=0), rows.item_idx.max(initial=0))) + 1
    place_of = _numbering(held_out.candidates, size=size)
    num_users = len(held_out.user_idx)
    numbers = _numbering(
        held_out.user_idx, size=int(max(held_out.user_idx.max(initial=0), rows.user_idx.max(initial=0))) + 1
    )
    given = _lists(rows.user_idx, place_of[rows.item_idx], numbers, num_users=num_users)
    user, place = given.block(0, num_users)
    width = len(held_out.candidates) + 1
    relevant_user, relevant = held_out.relevant.block(0, num_users)
    others = ~np.isin(user * width + place, relevant_user * width + relevant)
    is_lost = np.isin(rows.user_idx, held_out.user_idx) & ~np.isin(rows.item_idx, held_out.candidates)
    return replace(
        held_out,
        sampled=Lists.of(user[others], place[others], num_users=num_users),
        num_left_out=int(np.count_nonzero(is_lost & ~is_relevant(rows, relevance))),
    )


def for_users(user_idx: Ints, history: Interactions, *, candidates: Ints) -> HeldOut:
    """Return the ranking problem of recommendation to distinct users: seen items are filtered, nothing is held out."""
    place_of = _numbering(candidates, size=int(max(candidates.max(initial=0), history.item_idx.max(initial=0))) + 1)
    numbers = _numbering(user_idx, size=int(max(user_idx.max(initial=0), history.user_idx.max(initial=0))) + 1)
    seen = _lists(history.user_idx, place_of[history.item_idx], numbers, num_users=len(user_idx))
    nothing = Lists(np.empty(0, np.int64), np.zeros(len(user_idx) + 1, np.int64))
    return HeldOut(user_idx, candidates, seen, nothing, np.zeros(len(user_idx), np.int64), 0, 0)


def is_relevant(rows: Interactions, relevant: str | float) -> npt.NDArray[np.bool_]:
    """Return a mask (N,) of rows with a relevant label, by `evaluate.relevance`."""
    if relevant == "all":
        return np.ones(len(rows), dtype=bool)
    return rows.positive if isinstance(relevant, str) else rows.labels >= relevant


def sample_users(users: npt.NDArray[np.uint64], config: EvaluateConfig) -> Ints:
    """Return ascending indices of sampled users, by their hashes (U,): larger samples contain smaller ones."""
    if config.max_ranking_users is None or config.max_ranking_users >= len(users):
        return np.arange(len(users))
    hashes = hash_counters(users, mix(config.seed, _SAMPLE))
    return np.sort(np.argsort(hashes, kind="stable")[: config.max_ranking_users])


def _numbering(ids: Ints, *, size: int) -> Ints:
    """Return a table from id to its index in `ids`."""
    numbers = np.full(size, -1, dtype=np.int64)
    numbers[ids] = np.arange(len(ids))
    return numbers


def _lists(user_idx: npt.NDArray[np.integer], places: Ints, numbers: Ints, *, num_users: int) -> Lists:
    """Group places by ranked user; other users and items outside the candidates are dropped."""
    user = numbers[user_idx]
    keep = (user >= 0) & (places >= 0)
    return Lists.of(user[keep], places[keep], num_users=num_users)


Hashes = npt.NDArray[np.uint64]
_NO_VALUE, _SUMS = 15, (16, 17)


def value_hashes(data: PreparedData, column: Column) -> Hashes:
    """Return the hash of each id's raw value in a column; shape (cardinality,).

    Ids without a raw value, or in a column without a vocabulary, are hashed themselves.
    """
    hashes = hash_counters(np.arange(column.cardinality or 0, dtype=np.uint64), mix(0, _NO_VALUE))
    if column.vocabulary is None or not (path := data.vocabulary(column.vocabulary)).is_file():
        return hashes
    values = pq.read_table(path, columns=["value"])["value"].combine_chunks()
    if can_hash(values.type):
        hashes[FIRST : FIRST + len(values)] = hash_values(values)
    return hashes


def row_hashes(data: PreparedData, column: Column) -> Hashes:
    """Return `value_hashes`, followed by a hash of each cold key of the column's table; shape (table rows,)."""
    hashes, path = value_hashes(data, column), data.cold_keys(column.name)
    if not path.is_file():
        return hashes
    cold = pq.read_table(path, columns=["value", "row"])
    values = cold["value"].combine_chunks()
    of_rows = hash_counters(cold["row"].to_numpy().astype(np.uint64), mix(0, _NO_VALUE))
    return np.concatenate([hashes, hash_values(values) if can_hash(values.type) else of_rows])


def problem_hash(held_out: HeldOut, *, users: Hashes, items: Hashes, k: Sequence[int]) -> str:
    """Return the fingerprint of a ranking problem; `users` are hashes of its ranked users, `items` of all item ids."""
    candidates = items[held_out.candidates]
    parts = {
        "users": _unordered(users, held_out.num_relevant.astype(np.uint64)),
        "candidates": _unordered(candidates),
        "seen": _of_lists(held_out.seen, users, candidates),
        "relevant": _of_lists(held_out.relevant, users, candidates),
        "drawn": None if held_out.sampled is None else _of_lists(held_out.sampled, users, candidates),
        "k": sorted(set(k)),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def rows_hash(rows: Interactions, *, users: Hashes, items: Hashes) -> str:
    """Return the fingerprint of users, items and labels of rows, in file order."""
    digest = hashlib.sha256()
    for column in (users[rows.user_idx], items[rows.item_idx], rows.labels):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _of_lists(lists: Lists, users: Hashes, candidates: Hashes) -> list[int]:
    return _unordered(np.repeat(users, lists.lengths), candidates[lists.values])


def _unordered(first: Hashes, *others: Hashes) -> list[int]:
    """Return order-independent 128-bit sums of tuple hashes, and the number of tuples."""
    tuples = first
    for column in others:
        tuples = hash_counters(column, tuples)
    return [int(hash_counters(tuples, mix(0, stream)).sum(dtype=np.uint64)) for stream in _SUMS] + [len(tuples)]


_DRAW = 18
_BLOCK = 1 << 22


def sample_candidates(
    held_out: HeldOut, counts: Ints, *, users: Hashes, items: Hashes, config: EvaluateConfig
) -> HeldOut:
    """Return the problem with `config.sampled_items` sampled candidates for each user, neither seen nor relevant.

    Users with fewer such candidates get all of them. `sampled-popularity` samples without replacement with
    probabilities proportional to train rows, `counts` (I,): the smallest of exponential times with these rates
    (Efraimidis and Spirakis, 2006). `users` (U,) and `items` (I,) are hashes of raw values.
    """
    rates = counts.astype(np.float64) if config.candidates == "sampled-popularity" else np.ones(len(counts))
    step = max(1, _BLOCK // max(1, len(counts)))
    owners, positions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, len(users), step):
        stop = min(start + step, len(users))
        times = _times(users[start:stop], items, rates, seed=config.seed)
        for excluded in (held_out.seen, held_out.relevant):
            times[excluded.block(start, stop)] = np.inf
        number = min(config.sampled_items, len(counts))
        chosen = np.argpartition(times, number - 1, axis=1)[:, :number] if number < len(counts) else None
        block = np.broadcast_to(np.arange(len(counts)), times.shape) if chosen is None else chosen
        is_sampled = np.isfinite(np.take_along_axis(times, block, axis=1))
        owners.append(np.nonzero(is_sampled)[0] + start)
        positions.append(block[is_sampled])
    lists = Lists.of(np.concatenate(owners), np.concatenate(positions), num_users=len(users))
    return replace(held_out, sampled=lists)


def _times(users: Hashes, items: Hashes, rates: npt.NDArray[np.float64], *, seed: int) -> npt.NDArray[np.float64]:
    """Return an exponential time for each (user, item) pair, shape (U, I)."""
    keys = hash_counters(users, mix(seed, _DRAW))
    hashes = hash_counters(np.broadcast_to(items, (len(users), len(items))), keys[:, None])
    uniform = ((hashes >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    with np.errstate(divide="ignore"):  # rate 0 gives an infinite time: never sampled
        return -np.log(uniform) / rates


_TARGET = 20


def choose_targets(
    rows: Interactions,
    relevant: npt.NDArray[np.bool_],
    how: Literal["first", "last", "random"],
    *,
    users: Hashes,
    seed: int,
) -> tuple[Interactions, Interactions]:
    """Return the rows before each user's target, and the target: one of the relevant rows in the order of time.

    Args:
        rows: Interactions of the split, shape (N,).
        relevant: Mask of relevant rows, shape (N,). Users without any have no target, and their rows are left out.
        how: Position of the target among the relevant rows of its user; `random` by a hash of the raw user and the seed.
        users: Hash of each user id.
        seed: Seed of the random targets.
    """
    order = rows.chronological()
    positions = np.flatnonzero(relevant[order])  # of the relevant rows, in order
    owners, starts, counts = np.unique(rows.user_idx[order[positions]], return_index=True, return_counts=True)
    if how == "random":
        offsets = (hash_counters(users[owners], mix(seed, _TARGET)) % counts.astype(np.uint64)).astype(np.int64)
    else:
        offsets = counts - 1 if how == "last" else np.zeros_like(counts)
    chosen = positions[starts + offsets]
    user = rows.user_idx[order]
    place = np.full(int(user.max(initial=0)) + 1, -1, np.int64)  # of each user's target; none: -1
    place[owners] = chosen
    before = np.flatnonzero(np.arange(len(order)) < place[user])
    return rows.chosen(order[before]), rows.chosen(order[chosen])
