"""Negative sampling: files of staged interactions become files that have the sampled negatives as well.

A negative avoids the user's interactions of its own split and of those before it, never of a later one: what train never samples
would otherwise tell what is held out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.etl.partitions import PartitionedFile
from recsys_cli.etl.spill import Numbering
from recsys_cli.etl.staging import Staged
from recsys_cli.events import Emit, Progress
from recsys_cli.features.hashing import below, hash_counters, mix
from recsys_cli.features.ops import NegativeSampling
from recsys_cli.features.split import SPLITS, TRAIN

Ints = npt.NDArray[np.int64]
_STREAM = 4
_ATTEMPTS = 64
"""Draws of a row before the items that are left for its user are written out; only users who know almost all come to that."""


@dataclass(frozen=True)
class _Met:
    """Who has met what, in numbers of order of appearance.

    Attributes:
        pairs: user · num_items + item of every interaction, by split, each sorted; 8 bytes an interaction.
        num_items: How many items there are.
        items: The items that can be drawn, those of train, in order of their value.
        ends: For popularity, up to which draw each of them is meant (cumulative counts); None where all are alike.
        values: The raw values of all items, by number.
    """

    pairs: tuple[Ints, ...]
    num_items: int
    items: Ints
    ends: Ints | None
    values: pa.Array

    def draw(self, hashes: npt.NDArray[np.uint64]) -> Ints:
        """Return an item for each hash."""
        if self.ends is None:
            return self.items[below(hashes, len(self.items)).astype(np.int64)]
        wanted = hashes % np.uint64(self.ends[-1])
        return self.items[np.searchsorted(self.ends, wanted.astype(np.int64), side="right")]

    def by(self, users: Ints, items: Ints, *, splits: int) -> npt.NDArray[np.bool_]:
        """Return which users have met which items in the first of the splits."""
        keys = users * self.num_items + items
        order = np.argsort(keys)  # sorted, the lookups walk through memory instead of jumping
        wanted = keys[order]
        found = np.zeros(len(keys), dtype=bool)
        for pairs in self.pairs[:splits]:
            if len(pairs):
                found |= pairs[np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)] == wanted
        met = np.empty(len(keys), dtype=bool)
        met[order] = found
        return met

    def left(self, user: int, *, splits: int) -> Ints:
        """Return the items that can be drawn for a user who keeps what the first of the splits have."""
        borders = (user * self.num_items, (user + 1) * self.num_items)
        met = [pairs[slice(*np.searchsorted(pairs, borders))] - borders[0] for pairs in self.pairs[:splits]]
        return self.items[~np.isin(self.items, np.concatenate(met))]


def draw(op: NegativeSampling, staged: Staged, folder: Path, emit: Emit) -> Staged:
    """Add drawn rows to staged interactions.

    Args:
        op: What is wanted.
        staged: The interactions; their files are deleted.
        folder: Where the new files go.
        emit: Told how far it is.
    """
    users, items = Numbering(), Numbering()
    met = _met(op, staged, users, items)
    schema = staged.schema.append(pa.field(op.output, pa.int8()))
    sampled = {partition: SPLITS.index(split) + 1 for split in op.splits for partition in staged.partitions(split)}
    offsets = np.zeros(len(staged.files[0].starts) if staged.files else 1, dtype=np.int64)
    files = []
    done, total = 0, sum(staged.rows.values())
    for number, file in enumerate(staged.files):
        path = folder / f"drawn-{number:06d}.arrow"
        starts = [0]
        with pa.ipc.new_file(str(path), schema) as drawn:
            for partition, rows in enumerate(staged.batches(file)):
                if rows.num_rows and partition in sampled:
                    first = (partition << 40) + int(offsets[partition])
                    table = _with_drawn(op, rows, met, users, first=first, splits=sampled[partition])
                else:
                    table = rows.append_column(op.output, pa.array(np.zeros(rows.num_rows, dtype=np.int8)))
                drawn.write_batch(_one_batch(table, schema))
                starts.append(starts[-1] + table.num_rows)
                offsets[partition] += rows.num_rows
        file.path.unlink()
        files.append(PartitionedFile(path, np.array(starts, dtype=np.int64)))
        done += int(file.starts[-1])
        emit(Progress("draw negatives", done, total))
    return replace(staged, files=tuple(files), rows=staged.count(files), schema=schema)


def _met(op: NegativeSampling, staged: Staged, users: Numbering, items: Numbering) -> _Met:
    """Number all users and items, and note who has met what, and what train has."""
    parts: list[list[tuple[Ints, Ints]]] = [[] for _ in SPLITS]
    in_train: list[Ints] = []
    number_of = {partition: number for number, split in enumerate(SPLITS) for partition in staged.partitions(split)}
    for partition, rows in _by_partition(staged, [op.user, op.item]):
        known = _known(op, rows)
        user, item = users.of(rows.column(op.user)).to_numpy(), items.of(rows.column(op.item)).to_numpy()
        parts[number_of[partition]].append((user[known], item[known]))
        if number_of[partition] == TRAIN:
            in_train.append(np.bincount(item[known], minlength=len(items)))
    counts = np.zeros(len(items), dtype=np.int64)
    for some in in_train:
        counts[: len(some)] += some
    pairs = tuple(_sorted([user * len(items) + item for user, item in some]) for some in parts)
    # By value: numbers are in order of appearance, which depends on how the input was cut into batches.
    by_value = pc.sort_indices(items.values).to_numpy().astype(np.int64)
    candidates = by_value[counts[by_value] > 0]
    ends = np.cumsum(counts[candidates]) if op.distribution == "popularity" else None
    return _Met(pairs, len(items), candidates, ends, items.values)


def _sorted(parts: list[Ints]) -> Ints:
    together = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
    together.sort()
    return together


def _by_partition(staged: Staged, columns: list[str]) -> Iterator[tuple[int, pa.Table]]:
    for file in staged.files:
        for partition, rows in enumerate(staged.batches(file, columns)):
            if rows.num_rows:
                yield partition, rows


def _known(op: NegativeSampling, rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows have both a user and an item."""
    there = [rows.column(name).is_valid().to_numpy() for name in (op.user, op.item)]
    return np.logical_and(*there)


def _with_drawn(
    op: NegativeSampling, rows: pa.Table, met: _Met, users: Numbering, *, first: int, splits: int
) -> pa.Table:
    """Return rows, each followed by those drawn for it."""
    user = users.of(rows.column(op.user)).to_numpy()
    known = np.flatnonzero(_known(op, rows))
    owners = np.repeat(known, op.num_negatives)
    counters = (np.uint64(first) + owners.astype(np.uint64)) * np.uint64(op.num_negatives)
    counters += np.tile(np.arange(op.num_negatives, dtype=np.uint64), len(known))
    drawn = _drawn(op, counters, user[owners], met, splits=splits)
    owners, drawn = owners[drawn >= 0], drawn[drawn >= 0]

    source = np.concatenate([np.arange(rows.num_rows), owners])
    is_drawn = np.concatenate([np.zeros(rows.num_rows, dtype=np.int8), np.ones(len(owners), dtype=np.int8)])
    order = np.lexsort((is_drawn, source))
    columns = {}
    for field in rows.schema:
        values = rows.column(field.name).combine_chunks()
        if field.name == op.item:
            negatives = met.values.take(pa.array(drawn)).cast(field.type)
        elif field.name in (op.user, *op.context):
            negatives = values.take(pa.array(owners))
        else:
            negatives = pa.nulls(len(owners), field.type)
        columns[field.name] = pa.concat_arrays([values, negatives]).take(pa.array(order))
    return pa.table(columns).append_column(op.output, pa.array(is_drawn[order]))


def _drawn(op: NegativeSampling, counters: npt.NDArray[np.uint64], users: Ints, met: _Met, *, splits: int) -> Ints:
    """Return an item for each counter that its user has not met in the first of the splits, or -1 where there is none."""
    found = np.full(len(counters), -1, dtype=np.int64)
    open_ = np.arange(len(counters))
    for attempt in range(_ATTEMPTS):
        if not len(open_) or not len(met.items):
            return found
        items = met.draw(hash_counters(counters[open_], mix(op.seed, _STREAM, attempt)))
        taken = met.by(users[open_], items, splits=splits)
        found[open_[~taken]] = items[~taken]
        open_ = open_[taken]
    for row in open_:
        left = met.left(int(users[row]), splits=splits)
        if len(left):
            hashed = hash_counters(counters[row : row + 1], mix(op.seed, _STREAM, _ATTEMPTS))
            found[row] = left[int(below(hashed, len(left))[0])]
    return found


def _one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.concat_arrays([pa.array([], field.type), *table.column(field.name).chunks]) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
