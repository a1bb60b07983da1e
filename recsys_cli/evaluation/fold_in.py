"""Strong generalization: fold-in history and ground truth of cold-start users, from the same rows.

After a split by user, no user of valid or test is in train. Models with fold-in rank for them: the first part of each
user's rows is the history, the rest the ground truth (Marlin, 2004; Liang et al., WWW 2018).
"""

from __future__ import annotations

import numpy as np

from recsys_cli.evaluation.fingerprint import Hashes
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.interactions import Interactions

HISTORY = 0.8
"""Share of a user's rows used as fold-in history."""
_ORDER = 19


def fold_in(
    rows: Interactions, *, users: Hashes, items: Hashes, seed: int, targets: int | None = None
) -> tuple[Interactions, Interactions]:
    """Split each user's rows into history (the earliest 80 %) and ground truth, or the last `targets` rows.

    Rows of equal time are ordered by row number in the raw input; data without times by a hash of user, item and
    seed. The ground truth of n rows has max(1, round(n / 5)) rows. `users` and `items` are hashes by id.
    """
    if rows.times is None:
        chance = hash_counters(items[rows.item_idx], hash_counters(users[rows.user_idx], mix(seed, _ORDER)))
        order = np.lexsort((chance, rows.user_idx))
    else:
        order = rows.chronological()
    lengths = np.unique(rows.user_idx, return_counts=True)[1]
    num_held_out = np.maximum(1, np.round((1 - HISTORY) * lengths)).astype(np.int64) if targets is None else targets
    position = np.arange(len(order)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    is_held_out = position >= np.repeat(lengths - num_held_out, lengths)
    return rows.chosen(order[~is_held_out]), rows.chosen(order[is_held_out])
