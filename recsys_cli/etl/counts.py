"""Counts of values in partitions by hash: tasks write their counts, others add up a partition and drop its rare values.

The process with the plan only sees what the vocabularies keep. The hash is that of `features.hashing`: those of libraries
change between releases and, for packed or encoded text, between files.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from recsys_cli.etl.engine import Aggregates, Executor
from recsys_cli.features.columns import REST
from recsys_cli.features.hashing import below
from recsys_cli.ops import Categorify, JoinExternal
from recsys_cli.ops.join_external import keyed
from recsys_cli.ops.scratch import read_batch
from recsys_cli.ops.vocabulary import add_up, hashes_of_counts, unpacked

PARTITION_ROWS = 1 << 25
"""Rows of train per partition; counts of fewer rows stay in one piece."""

Column = tuple[int, str]
"""Position of the op in the plan, and name of the column."""


def num_partitions(rows: int) -> int:
    """Return the number of partitions for a number of rows of train."""
    return max(1, -(-rows // PARTITION_ROWS))


@dataclass(frozen=True)
class CountFile:
    """Counts of a column in a scratch file with a record batch per partition."""

    path: Path

    @classmethod
    def write(cls, counts: pa.Table, num_partitions: int, folder: Path) -> CountFile:
        """Write counts; a repeated task writes another file."""
        partitions = below(hashes_of_counts(counts), num_partitions).astype(np.intp)
        order = np.argsort(partitions, kind="stable")
        ends = np.cumsum(np.bincount(partitions, minlength=num_partitions))
        ordered = pa.table({name: counts.column(name).combine_chunks() for name in counts.column_names})
        ordered = ordered.take(pa.array(order)).combine_chunks()
        path = folder / f"counts-{uuid.uuid4().hex}.arrow"
        with pa.ipc.new_file(str(path), ordered.schema) as file:
            for start, end in zip((0, *ends[:-1]), ends, strict=True):
                batches = ordered.slice(int(start), int(end - start)).to_batches()
                file.write_batch(batches[0] if batches else pa.RecordBatch.from_pylist([], ordered.schema))
        return cls(path)

    def read(self, partition: int) -> pa.Table:
        """Return the counts of a partition."""
        return read_batch(self.path, partition)


@dataclass(frozen=True)
class Merged:
    """Counts of a partition by column, and how often it has the values left out."""

    counts: Mapping[str, pa.Table]
    dropped: Mapping[str, int]


@dataclass(frozen=True)
class MergeCounts:
    """Adds up the counts of one partition of a vocabulary: a task of an executor.

    Attributes:
        joins: The joins on a column, and their tables: counts of their keys are kept.
    """

    ops: Mapping[int, Categorify]
    files: Mapping[Column, tuple[CountFile, ...]]
    joins: tuple[JoinExternal, ...]
    tables: Mapping[str, pa.Table]

    def __call__(self, part: tuple[int, str, int]) -> Merged:
        """Merge a partition of the vocabulary of an op."""
        index, vocabulary, partition = part
        op = self.ops[index]
        columns = [name for name in op.learns if op.vocabulary_of(name) == vocabulary]
        merged = {name: add_up([file.read(partition) for file in self.files[index, name]]) for name in columns}
        if vocabulary in op.vocabs or (op.freq_threshold <= 1 and op.max_size is None):
            return Merged(merged, dict.fromkeys(columns, 0))
        return Merged(*op.without_rare(merged, {name: self._keys(name, merged[name]) for name in columns}))

    def _keys(self, column: str, counts: pa.Table) -> pa.Array:
        kind = unpacked(counts.slice(0, 0)).column("value").type
        keys = [keyed(join, self.tables[join.table], kind).column(join.on) for join in self.joins if join.on == column]
        return pa.chunked_array([chunk for values in keys for chunk in values.chunks], kind).combine_chunks()


def merge_counts(
    parts: Iterable[tuple[Column, CountFile]],
    ops: Mapping[int, Categorify],
    joins: tuple[JoinExternal, ...],
    tables: Mapping[str, pa.Table],
    num_partitions: int,
    executor: Executor,
) -> tuple[Aggregates, dict[Column, int]]:
    """Return the merged counts without rare values, and how often a column has these; deletes the files."""
    files: dict[Column, list[CountFile]] = defaultdict(list)
    for column, file in parts:
        files[column].append(file)
    task = MergeCounts(ops, {column: tuple(some) for column, some in files.items()}, joins, tables)
    todo = [
        (index, name, number)
        for index, op in ops.items()
        for name in op.vocabularies
        for number in range(num_partitions)
    ]
    counts: dict[Column, list[pa.Table]] = defaultdict(list)
    dropped: dict[Column, int] = defaultdict(int)
    for (index, _, _), merged in zip(todo, executor.map(task, todo), strict=True):
        for name, table in merged.counts.items():
            counts[index, name].append(table)
            dropped[index, name] += merged.dropped[name]
    for file in (file for some in files.values() for file in some):
        file.path.unlink(missing_ok=True)
    return {column: add_up(tables) for column, tables in counts.items()}, dropped


def with_unseen(state: Aggregates, dropped: Mapping[Column, int]) -> Aggregates:
    """Return the state of the columns with the dropped values counted as unseen."""
    added: Aggregates = {}
    for (index, name), count in dropped.items():
        rest = state[index, name + REST]
        unseen = pa.array([rest.column("unseen")[0].as_py() + count], pa.int64())
        added[index, name + REST] = rest.set_column(rest.column_names.index("unseen"), "unseen", unseen)
    return added
