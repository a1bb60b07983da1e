"""Fingerprint of an evaluation task: a hash of raw values, equal for differently prepared data of one split."""

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
