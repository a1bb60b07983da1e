"""Sampled negatives in the partitioned files of staged interactions.

A negative avoids the interactions of the user in its own and earlier splits, never in later ones: items that train
never samples would leak the held-out items.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.staging import Staged
from recsys_cli.events import Emit, Progress
from recsys_cli.features.hashing import below, hash_counters, mix
from recsys_cli.features.split import SPLITS, TRAIN
from recsys_cli.ops import NegativeSampling
from recsys_cli.ops.scratch import Numbering, PartitionedFile

Ints = npt.NDArray[np.int64]
_STREAM = 4
_ATTEMPTS = 64
"""Attempts of rejection sampling per row, before a choice among the enumerated unseen items of the user."""


@dataclass(frozen=True)
class _Pairs:
    """The pairs of all interactions and the candidates, with users and items numbered in order of appearance.

    Attributes:
        pairs: Sorted keys user · num_items + item of the interactions, by split; 8 bytes per interaction.
        items: The candidates, the items of train, in the order of their values.
        ends: Cumulative counts of the candidates for the popularity distribution; None for the uniform one.
        values: The raw values of all items, by number.
    """

    pairs: tuple[Ints, ...]
    num_items: int
    items: Ints
    ends: Ints | None
    values: pa.Array

    def sample(self, hashes: npt.NDArray[np.uint64]) -> Ints:
        if self.ends is None:
            return self.items[below(hashes, len(self.items)).astype(np.int64)]
        ranks = hashes % np.uint64(self.ends[-1])
        return self.items[np.searchsorted(self.ends, ranks.astype(np.int64), side="right")]

    def are_positive(self, users: Ints, items: Ints, *, splits: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the pairs with an interaction in the first `splits` splits."""
        keys = users * self.num_items + items
        order = np.argsort(keys)  # sorted lookups have sequential memory access
        keys = keys[order]
        exists = np.zeros(len(keys), dtype=bool)
        for pairs in self.pairs[:splits]:
            if len(pairs):
                exists |= pairs[np.minimum(np.searchsorted(pairs, keys), len(pairs) - 1)] == keys
        positive = np.empty(len(keys), dtype=bool)
        positive[order] = exists
        return positive

    def unseen(self, user: int, *, splits: int) -> Ints:
        borders = (user * self.num_items, (user + 1) * self.num_items)
        seen = [pairs[slice(*np.searchsorted(pairs, borders))] - borders[0] for pairs in self.pairs[:splits]]
        return self.items[~np.isin(self.items, np.concatenate(seen))]


def sample_negatives(op: NegativeSampling, staged: Staged, folder: Path, emit: Emit) -> Staged:
    """Add sampled negatives to staged interactions, and delete the old files."""
    users, items = Numbering(), Numbering()
    pairs = _read_pairs(op, staged, users, items)
    schema = staged.schema.append(pa.field(op.output, pa.int8()))
    sampled = {partition: SPLITS.index(split) + 1 for split in op.splits for partition in staged.partitions(split)}
    offsets = np.zeros(len(staged.files[0].starts) if staged.files else 1, dtype=np.int64)
    files = []
    done, total = 0, sum(staged.rows.values())
    for number, file in enumerate(staged.files):
        path = folder / f"negatives-{number:06d}.arrow"
        starts = [0]
        with pa.ipc.new_file(str(path), schema) as output:
            for partition, rows in enumerate(staged.batches(file)):
                if rows.num_rows and partition in sampled:
                    first = (partition << 40) + int(offsets[partition])
                    table = _with_negatives(op, rows, pairs, users, first=first, splits=sampled[partition])
                else:
                    table = rows.append_column(op.output, pa.array(np.zeros(rows.num_rows, dtype=np.int8)))
                output.write_batch(_one_batch(table, schema))
                starts.append(starts[-1] + table.num_rows)
                offsets[partition] += rows.num_rows
        file.path.unlink()
        files.append(PartitionedFile(path, np.array(starts, dtype=np.int64)))
        done += int(file.starts[-1])
        emit(Progress("sample negatives", done, total))
    return replace(staged, files=tuple(files), rows=staged.count(files), schema=schema)


def _read_pairs(op: NegativeSampling, staged: Staged, users: Numbering, items: Numbering) -> _Pairs:
    parts: list[list[tuple[Ints, Ints]]] = [[] for _ in SPLITS]
    in_train: list[Ints] = []
    number_of = {partition: number for number, split in enumerate(SPLITS) for partition in staged.partitions(split)}
    for partition, rows in _by_partition(staged, [op.user, op.item]):
        valid = _has_pair(op, rows)
        user, item = users.of(rows.column(op.user)).to_numpy(), items.of(rows.column(op.item)).to_numpy()
        parts[number_of[partition]].append((user[valid], item[valid]))
        if number_of[partition] == TRAIN:
            in_train.append(np.bincount(item[valid], minlength=len(items)))
    counts = np.zeros(len(items), dtype=np.int64)
    for part in in_train:
        counts[: len(part)] += part
    pairs = tuple(_sorted([user * len(items) + item for user, item in part]) for part in parts)
    # By value: the order of appearance depends on the batches of the input.
    by_value = pc.sort_indices(items.values).to_numpy().astype(np.int64)
    candidates = by_value[counts[by_value] > 0]
    ends = np.cumsum(counts[candidates]) if op.distribution == "popularity" else None
    return _Pairs(pairs, len(items), candidates, ends, items.values)


def _sorted(parts: list[Ints]) -> Ints:
    keys = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
    keys.sort()
    return keys


def _by_partition(staged: Staged, columns: list[str]) -> Iterator[tuple[int, pa.Table]]:
    for file in staged.files:
        for partition, rows in enumerate(staged.batches(file, columns)):
            if rows.num_rows:
                yield partition, rows


def _has_pair(op: NegativeSampling, rows: pa.Table) -> npt.NDArray[np.bool_]:
    valid = [rows.column(name).is_valid().to_numpy() for name in (op.user, op.item)]
    return np.logical_and(*valid)


def _with_negatives(
    op: NegativeSampling, rows: pa.Table, pairs: _Pairs, users: Numbering, *, first: int, splits: int
) -> pa.Table:
    user = users.of(rows.column(op.user)).to_numpy()
    positions = np.flatnonzero(_has_pair(op, rows))
    owners = np.repeat(positions, op.num_negatives)
    counters = (np.uint64(first) + owners.astype(np.uint64)) * np.uint64(op.num_negatives)
    counters += np.tile(np.arange(op.num_negatives, dtype=np.uint64), len(positions))
    sampled = _sample(op, counters, user[owners], pairs, splits=splits)
    owners, sampled = owners[sampled >= 0], sampled[sampled >= 0]

    source = np.concatenate([np.arange(rows.num_rows), owners])
    is_sampled = np.concatenate([np.zeros(rows.num_rows, dtype=np.int8), np.ones(len(owners), dtype=np.int8)])
    order = np.lexsort((is_sampled, source))
    columns = {}
    for field in rows.schema:
        values = rows.column(field.name).combine_chunks()
        if field.name == op.item:
            negatives = pairs.values.take(pa.array(sampled)).cast(field.type)
        elif field.name in (op.user, *op.context):
            negatives = values.take(pa.array(owners))
        else:
            negatives = pa.nulls(len(owners), field.type)
        columns[field.name] = pa.concat_arrays([values, negatives]).take(pa.array(order))
    return pa.table(columns).append_column(op.output, pa.array(is_sampled[order]))


def _sample(op: NegativeSampling, counters: npt.NDArray[np.uint64], users: Ints, pairs: _Pairs, *, splits: int) -> Ints:
    """Return one item per counter, unseen by its user in the first `splits` splits; -1 if there is none."""
    sampled = np.full(len(counters), -1, dtype=np.int64)
    pending = np.arange(len(counters))
    for attempt in range(_ATTEMPTS):
        if not len(pending) or not len(pairs.items):
            return sampled
        items = pairs.sample(hash_counters(counters[pending], mix(op.seed, _STREAM, attempt)))
        positive = pairs.are_positive(users[pending], items, splits=splits)
        sampled[pending[~positive]] = items[~positive]
        pending = pending[positive]
    for row in pending:
        unseen = pairs.unseen(int(users[row]), splits=splits)
        if len(unseen):
            hashed = hash_counters(counters[row : row + 1], mix(op.seed, _STREAM, _ATTEMPTS))
            sampled[row] = unseen[int(below(hashed, len(unseen))[0])]
    return sampled


def _one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.concat_arrays([pa.array([], field.type), *table.column(field.name).chunks]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
