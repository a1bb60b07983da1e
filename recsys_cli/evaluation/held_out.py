"""Who is ranked for, what is ranked, what is hidden and what should be found: the same for every system."""

from __future__ import annotations

from dataclasses import dataclass

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
    """One list of candidate places for each of U users.

    Attributes:
        values: All lists one after the other; shape (N,).
        offsets: Where each list starts, and N at the end; shape (U + 1,).
    """

    values: Ints
    offsets: Ints

    @classmethod
    def of(cls, user: Ints, values: Ints, *, num_users: int) -> Lists:
        """Group values (N,) by user number (N,), each below `num_users`; ascending, and each once."""
        width = int(values.max(initial=0)) + 1
        pairs = np.unique(user.astype(np.int64) * width + values)
        return cls(pairs % width, np.searchsorted(pairs, np.arange(num_users + 1) * width))

    @property
    def lengths(self) -> Ints:
        """How long each list is, shape (U,)."""
        return np.diff(self.offsets)

    def before(self, values: npt.NDArray[np.integer]) -> Ints:
        """Return how many entries of each user's list are smaller than some values, both of shape (U, P)."""
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

    Candidates stand in the order that breaks ties: more train rows first, then the lower id. A place is an index into
    them.

    Attributes:
        user_idx: Encoded users to rank for, ascending; shape (U,).
        candidates: Encoded items to rank; shape (I,).
        seen: Places that a user has met before and must not be recommended, each once.
        relevant: Places that a ranking should find, each once, none of them seen.
        num_relevant: How much there is to find, unreachable interactions included, at least 1; shape (U,).
        num_eligible: Users with something to find, of whom U are ranked for.
        num_without: Users of the split with nothing to find.
        drawn: Places that are ranked beside the relevant ones, none of them seen; None where all that is not seen is ranked.
    """

    user_idx: Ints
    candidates: Ints
    seen: Lists
    relevant: Lists
    num_relevant: Ints
    num_eligible: int
    num_without: int
    drawn: Lists | None = None

    @property
    def num_rankable(self) -> Ints:
        """How many places a user's ranking has at most, shape (U,)."""
        if self.drawn is not None:
            return self.drawn.lengths + self.relevant.lengths
        return len(self.candidates) - self.seen.lengths

    def by_popularity(self, places: npt.NDArray[np.integer]) -> Ints:
        """Return at which place, from 0, a ranking by popularity would have what stands at some places; both (U, P)."""
        if self.drawn is not None:
            return self.drawn.before(places) + self.relevant.before(places)
        return places - self.seen.before(places)

    @property
    def num_unreachable(self) -> int:
        """Interactions to find whose item is no candidate: misses for every system."""
        return int(self.num_relevant.sum()) - len(self.relevant.values)


def candidate_items(train: Interactions, *, num_items: int) -> Ints:
    """Return the items with an id of their own and a row in train, in the order that breaks ties."""
    return most_met(np.bincount(train.item_idx, minlength=num_items))


def most_met(counts: Ints) -> Ints:
    """Return the same from how many rows of train each encoded item has; shape (num_items,)."""
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
    """Turn the rows of a split into a ranking problem.

    Users without an id of their own are left out: they share one, so their rows cannot be told apart. Items that are no
    candidates stay in the denominator: one miss for each row of an item without an id, one for each other item.

    Args:
        rows: The split.
        history: What users have met before: train, and valid where the split is test.
        candidates: What `candidate_items` returned.
        num_items: Item ids are below it.
        config: Which rows are relevant, and how many users to sample by which seed.
        user_hashes: What a sample is chosen by: a hash of the value behind each user id, so that other data of the same
            split has the same sample; of the id itself where left out.
    """
    place_of = _numbering(candidates, size=num_items)
    known = rows.user_idx >= FIRST
    wanted = known & is_relevant(rows, config.relevance)
    user, item = rows.user_idx[wanted].astype(np.int64), rows.item_idx[wanted].astype(np.int64)

    pairs = np.unique(user[item >= FIRST] * num_items + item[item >= FIRST])
    pairs = pairs[~np.isin(pairs, history.user_idx.astype(np.int64) * num_items + history.item_idx)]
    owners = np.concatenate([pairs // num_items, user[item < FIRST]])
    eligible, num_relevant = np.unique(owners, return_counts=True)
    chosen = _sample(eligible.astype(np.uint64) if user_hashes is None else user_hashes[eligible], config)
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
    )


def for_users(user_idx: Ints, history: Interactions, *, candidates: Ints) -> HeldOut:
    """Return the ranking problem of recommendation: seen items are filtered, and nothing is held out.

    Args:
        user_idx: Encoded users, each once; shape (U,).
        history: Their seen items; rows of other users are ignored.
        candidates: Encoded items to rank; shape (I,).
    """
    place_of = _numbering(candidates, size=int(max(candidates.max(initial=0), history.item_idx.max(initial=0))) + 1)
    numbers = _numbering(user_idx, size=int(max(user_idx.max(initial=0), history.user_idx.max(initial=0))) + 1)
    seen = _lists(history.user_idx, place_of[history.item_idx], numbers, num_users=len(user_idx))
    nothing = Lists(np.empty(0, np.int64), np.zeros(len(user_idx) + 1, np.int64))
    return HeldOut(user_idx, candidates, seen, nothing, np.zeros(len(user_idx), np.int64), 0, 0)


def is_relevant(rows: Interactions, relevant: str | float) -> npt.NDArray[np.bool_]:
    """Return which rows a ranking should find, as far as their label goes; shape (N,).

    Args:
        rows: Any.
        relevant: As `evaluate.relevance`.
    """
    if relevant == "all":
        return np.ones(len(rows), dtype=bool)
    return rows.positive if isinstance(relevant, str) else rows.labels >= relevant


def _sample(users: npt.NDArray[np.uint64], config: EvaluateConfig) -> Ints:
    """Choose users by the order of their hash, so that a larger sample contains a smaller one; indices, ascending."""
    if config.max_ranking_users is None or config.max_ranking_users >= len(users):
        return np.arange(len(users))
    hashes = hash_counters(users, mix(config.seed, _SAMPLE))
    return np.sort(np.argsort(hashes, kind="stable")[: config.max_ranking_users])


def _numbering(ids: Ints, *, size: int) -> Ints:
    """Return a table from id to its index in `ids`, -1 for others."""
    numbers = np.full(size, -1, dtype=np.int64)
    numbers[ids] = np.arange(len(ids))
    return numbers


def _lists(user_idx: npt.NDArray[np.integer], places: Ints, numbers: Ints, *, num_users: int) -> Lists:
    """Group places by ranked user; users that are not ranked and items that are no candidates are dropped."""
    user = numbers[user_idx]
    keep = (user >= 0) & (places >= 0)
    return Lists.of(user[keep], places[keep], num_users=num_users)
