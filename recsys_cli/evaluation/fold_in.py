"""Strong generalization: fold-in history and ground truth of cold-start users, from the same rows.

After a split by user, no user of valid or test is in train. Models with fold-in rank for them: the first part of each
user's rows is the history, the rest the ground truth (Marlin, 2004; Liang et al., WWW 2018).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from recsys_cli.config import EvaluateConfig
from recsys_cli.errors import ConfigError
from recsys_cli.evaluation.fingerprint import Hashes
from recsys_cli.evaluation.held_out import is_relevant, sample_users
from recsys_cli.features.hashing import hash_counters, mix
from recsys_cli.features.schema import FIRST
from recsys_cli.interactions import Interactions

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
