"""Targets of a split by time: one interaction of each user after the border, with the earlier ones as history.

The protocols of "Time to Split" (Gusak et al., RecSys 2025): the last, the first or a random interaction of the user.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from recsys_cli.evaluation.fingerprint import Hashes
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.interactions import Interactions

_DRAW = 20


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
        offsets = (hash_counters(users[owners], mix(seed, _DRAW)) % counts.astype(np.uint64)).astype(np.int64)
    else:
        offsets = counts - 1 if how == "last" else np.zeros_like(counts)
    chosen = positions[starts + offsets]
    user = rows.user_idx[order]
    place = np.full(int(user.max(initial=0)) + 1, -1, np.int64)  # of each user's target; none: -1
    place[owners] = chosen
    before = np.flatnonzero(np.arange(len(order)) < place[user])
    return rows.chosen(order[before]), rows.chosen(order[chosen])
