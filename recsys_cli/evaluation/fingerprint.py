"""What was asked of a system, as one hash of raw values: runs on differently prepared data of one split have the same.

Encoded ids are this data's own; the values behind them are everybody's. So each id is first replaced by a hash of its value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from recsys_cli.evaluation.held_out import HeldOut, Lists
from recsys_cli.features.hashing import can_hash, hash_counters, hash_values, mix
from recsys_cli.features.schema import FIRST, Column
from recsys_cli.interactions import Interactions
from recsys_cli.workspace import PreparedData

Hashes = npt.NDArray[np.uint64]
_NO_VALUE, _SUMS = 15, (16, 17)


def value_hashes(data: PreparedData, column: Column) -> Hashes:
    """Return a hash for each id of a column, by the value that it stands for; shape (cardinality,).

    Ids that stand for no value of their own, and those of a column without a vocabulary, are hashed themselves.
    """
    hashes = hash_counters(np.arange(column.cardinality or 0, dtype=np.uint64), mix(0, _NO_VALUE))
    if column.vocabulary is None or not (path := data.vocabulary(column.vocabulary)).is_file():
        return hashes
    values = pq.read_table(path, columns=["value"])["value"].combine_chunks()
    if can_hash(values.type):
        hashes[FIRST : FIRST + len(values)] = hash_values(values)
    return hashes


def row_hashes(data: PreparedData, column: Column) -> Hashes:
    """Return what `value_hashes` does, and behind it a hash for each cold key of the column's table; shape (table rows,)."""
    hashes, path = value_hashes(data, column), data.cold_keys(column.name)
    if not path.is_file():
        return hashes
    cold = pq.read_table(path, columns=["value", "row"])
    values = cold["value"].combine_chunks()
    of_rows = hash_counters(cold["row"].to_numpy().astype(np.uint64), mix(0, _NO_VALUE))
    return np.concatenate([hashes, hash_values(values) if can_hash(values.type) else of_rows])


def problem_hash(held_out: HeldOut, *, users: Hashes, items: Hashes, k: Sequence[int]) -> str:
    """Return the hash of a ranking problem: whom to rank for, what, what is hidden and what should be found.

    Args:
        held_out: The problem.
        users: Hash of each ranked user's value, shape (U,).
        items: Hash of each item id's value.
        k: The cut-offs.
    """
    places = items[held_out.candidates]
    parts = {
        "users": _unordered(users, held_out.num_relevant.astype(np.uint64)),
        "candidates": _unordered(places),
        "seen": _of_lists(held_out.seen, users, places),
        "relevant": _of_lists(held_out.relevant, users, places),
        "drawn": None if held_out.drawn is None else _of_lists(held_out.drawn, users, places),
        "k": sorted(set(k)),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def rows_hash(rows: Interactions, *, users: Hashes, items: Hashes) -> str:
    """Return the hash of rows in their order: hashes of user ids, of item ids, and the label."""
    digest = hashlib.sha256()
    for column in (users[rows.user_idx], items[rows.item_idx], rows.labels):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _of_lists(lists: Lists, users: Hashes, places: Hashes) -> list[int]:
    return _unordered(np.repeat(users, lists.lengths), places[lists.values])


def _unordered(first: Hashes, *others: Hashes) -> list[int]:
    """Sum hashes of tuples twice, with different keys: 128 bits that do not depend on the order, without sorting."""
    tuples = first
    for column in others:
        tuples = hash_counters(column, tuples)
    return [int(hash_counters(tuples, mix(0, stream)).sum(dtype=np.uint64)) for stream in _SUMS] + [len(tuples)]
