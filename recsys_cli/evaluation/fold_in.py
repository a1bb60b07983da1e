"""Strong generalisation: rankings for users whom train does not have, from a part of their rows.

After a split by user, nobody in valid or test has an id. A model that makes what it knows of a user from the user's history
alone can rank for them all the same: each is lent an id, and is described by the first part of the rows, to find the rest
(Marlin, 2004; Liang et al., WWW 2018).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys_cli.evaluation.held_out import Ints
from recsys_cli.evaluation.problem import Hashes
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import FIRST
from recsys_cli.interactions import Interactions

HISTORY = 0.8
"""Share of a user's rows that describe the user."""
_ORDER, _LENT = 19, 20


@dataclass(frozen=True)
class FoldedIn:
    """Users with lent ids, from 3 on.

    Attributes:
        history: The rows that describe them.
        rows: The rows that they should find.
        user_hashes: Hash of each id's user.
        num_users: How many users there are, of whom so many have an id lent as there are ids.
    """

    history: Interactions
    rows: Interactions
    user_hashes: Hashes
    num_users: int


def fold_in(rows: Interactions, user_hashes: Hashes, *, items: Hashes, num_ids: int, seed: int) -> FoldedIn:
    """Lend ids to the users of some rows, and cut the rows of each: the earliest four fifths are history, the others to find.

    Rows without a time, or of the same time, stand in the order of a hash of user, item and seed. Of n rows, the larger of
    1 and n / 5, rounded, are to find.

    Args:
        rows: What happened, in a split by user.
        user_hashes: Hash of the user of each row, shape (N,).
        items: Hash of each item id's value.
        num_ids: Ids are below it; where there are more users, those with the smallest hash of a hash are taken.
        seed: Decides the order of rows without a time, and which users are taken.
    """
    users = np.unique(user_hashes)
    lent = users[np.sort(np.argsort(hash_counters(users, mix(seed, _LENT)), kind="stable")[: num_ids - FIRST])]
    place = np.minimum(np.searchsorted(lent, user_hashes), len(lent) - 1)
    there = np.flatnonzero(lent[place] == user_hashes) if len(lent) else np.empty(0, np.int64)
    number = place[there]
    chance = hash_counters(items[rows.item_idx[there]], hash_counters(user_hashes[there], mix(seed, _ORDER)))
    times = np.zeros(len(there), np.int64) if rows.times is None else rows.times[there]
    order = np.lexsort((chance, times, number))
    lengths = np.bincount(number, minlength=len(lent))
    to_find = np.maximum(1, np.round((1 - HISTORY) * lengths)).astype(np.int64)
    position = np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    later = position >= np.repeat(lengths - to_find, lengths)
    known, wanted = (_lent(rows, there[order[part]], number[order[part]]) for part in (~later, later))
    return FoldedIn(known, wanted, np.concatenate([np.zeros(FIRST, np.uint64), lent]), len(users))


def _lent(rows: Interactions, which: Ints, number: Ints) -> Interactions:
    chosen = rows.chosen(which)
    return Interactions((number + FIRST).astype(np.int32), chosen.item_idx, chosen.labels, None, chosen.times)
