"""The ranking problem of a split, equal for every system."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import FIRST
from recsys_cli.interactions import Interactions

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


@dataclass(frozen=True)
class HeldOut:
    """A ranking problem over U users and I candidates.

    Candidates are in tie-breaking order: more train rows first, then the lower id. A place is a position in it.
    `num_eligible` users have ground truth, U of which are ranked; `num_without` have none. Of the `num_pairs` distinct
    relevant (user, item) pairs of all users, `num_repeated` are in the history too, and so not in the ground truth.

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

    Only users with an id of their own and at least one relevant item take part. A relevant item is new to its user and comes
    from a relevant row. Relevant items outside the candidates count as misses in `num_relevant`: items with an id once
    per user, items without an id once per row.

    Args:
        rows: Interactions of the split.
        history: Seen interactions: train, plus valid for test.
        candidates: Encoded items to rank, from `candidate_items`; shape (I,).
        num_items: Upper bound of the encoded items.
        config: Minimum label of a relevant row; size and seed of the sample of users.
        user_hashes: Hash of the raw user by encoded user, so that all prepared data of a split have the same sample of
            users; None for a sample by encoded user.
    """
    place_of = _numbering(candidates, size=num_items)
    known = rows.user_idx >= FIRST
    is_held_out = known & is_relevant(rows, config.relevance)
    user, item = rows.user_idx[is_held_out].astype(np.int64), rows.item_idx[is_held_out].astype(np.int64)

    pairs = np.unique(user[item >= FIRST] * num_items + item[item >= FIRST])
    num_pairs = len(pairs)
    pairs = pairs[~np.isin(pairs, history.user_idx.astype(np.int64) * num_items + history.item_idx)]
    owners = np.concatenate([pairs // num_items, user[item < FIRST]])
    eligible, num_relevant = np.unique(owners, return_counts=True)
    chosen = sample_users(eligible.astype(np.uint64) if user_hashes is None else user_hashes[eligible], config)
    users = eligible[chosen]

    numbers = _numbering(users, size=int(max(history.user_idx.max(initial=0), rows.user_idx.max(initial=0))) + 1)
    return HeldOut(
        user_idx=users,
        candidates=candidates,
        seen=_lists(history.user_idx, place_of[history.item_idx], numbers, num_users=len(users)),
        relevant=_lists(pairs // num_items, place_of[pairs % num_items], numbers, num_users=len(users)),
        num_relevant=num_relevant[chosen],
        num_eligible=len(eligible),
        num_without=len(np.unique(rows.user_idx[known])) - len(eligible),
        num_pairs=num_pairs,
        num_repeated=num_pairs - len(pairs),
    )


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
