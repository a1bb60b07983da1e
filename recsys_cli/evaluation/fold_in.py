"""Strong generalisation: what describes users whom train does not have, and what they should find, from the same rows.

After a split by user, nothing is known of anybody in valid or test. A model that makes what it knows of a user from the user's
history alone can rank for them all the same: each is described by the first part of the rows, to find the rest (Marlin, 2004;
Liang et al., WWW 2018).
"""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.fingerprint import Hashes
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.interactions import Interactions

HISTORY = 0.8
"""Share of a user's rows that describe the user."""
_ORDER = 19


def fold_in(rows: Interactions, *, users: Hashes, items: Hashes, seed: int) -> tuple[Interactions, Interactions]:
    """Cut the rows of each user: the earliest four fifths are history, the others to find; return both.

    Rows of the same time stand in the order of their numbers in the raw input, rows of data without times in that of a hash of
    user, item and seed. Of n rows, the larger of 1 and n / 5, rounded, are to find.

    Args:
        rows: What happened, with every user told apart.
        users: Hash of each user id's value.
        items: Hash of each item id's value.
        seed: Decides the order of rows without a time.
    """
    if rows.times is None:
        chance = hash_counters(items[rows.item_idx], hash_counters(users[rows.user_idx], mix(seed, _ORDER)))
        order = np.lexsort((chance, rows.user_idx))
    else:
        order = rows.chronological()
    lengths = np.unique(rows.user_idx, return_counts=True)[1]
    to_find = np.maximum(1, np.round((1 - HISTORY) * lengths)).astype(np.int64)
    position = np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    later = position >= np.repeat(lengths - to_find, lengths)
    return rows.chosen(order[~later]), rows.chosen(order[later])
