"""Rows by key in bounded memory: dealt to buckets by a hash of the key, worked on one by one, and brought back in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from recsys_cli.etl.executor import Threads
from recsys_cli.etl.filters.flow import Flow, OpContext
from recsys_cli.etl.join_keys import canonical
from recsys_cli.etl.partitions import PartitionedFile, Span, read
from recsys_cli.features.columns import POSITION
from recsys_cli.features.hashing import below, hash_counters

_SHARE = 32
"""What part of the budget a bucket's rows take: a few times as much is needed to put them in order, of two at a time."""
_MOST_BUCKETS = 4096
_AT_ONCE = 2
"""Buckets in work at the same time: more would cost memory, and a bucket's work is spread over the processors in part."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Buckets:
    """Rows in scratch files, such that those with one key are in one bucket.

    Attributes:
        files: A file for each batch, with a record batch for each bucket.
        count: How many buckets there are.
        schema: The rows' columns.
        context: Whose they are.
    """

    files: tuple[PartitionedFile, ...]
    count: int
    schema: pa.Schema
    context: OpContext

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(int(file.starts[-1]) for file in self.files)

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield each bucket that has rows, in the order of their positions."""
        for bucket in range(self.count):
            sizes = ((file, int(file.starts[bucket + 1] - file.starts[bucket])) for file in self.files)
            spans = [Span(file, bucket, 0, size) for file, size in sizes if size]
            if spans:
                yield read(spans, self.schema, self.schema.names)

    def map(self, work: Callable[[pa.Table], Result]) -> Iterator[Result]:
        """Yield what is made of each bucket that has rows, and say how far that is."""
        sized = Threads(_AT_ONCE).map(lambda rows: (rows.num_rows, work(rows)), self)
        return self.context.watch(self.context.name, sized, self.num_rows)

    def delete(self) -> None:
        """Delete the files."""
        for file in self.files:
            file.path.unlink()


def bucket_bytes(memory: int) -> int:
    """Return the size of a bucket's rows for a budget in MiB."""
    return (memory << 20) // _SHARE


def partition(rows: Flow, by: Sequence[str], columns: Sequence[str], context: OpContext) -> Buckets:
    """Distribute materialized rows over buckets.

    Args:
        rows: The rows.
        by: The key. NaN is null in it, and null a value like any other; -0.0 is 0.0.
        columns: The columns to keep beside it.
        context: Says where scratch files go, and how large a bucket may be.
    """
    names = list(dict.fromkeys((*by, *columns)))
    batches = rows.batches(names)
    first = next(batches, None)
    if first is None:
        return Buckets((), 1, pa.schema([]), context)
    size = (first.nbytes / first.num_rows + 8) * (rows.most or 0)  # 8 for the position
    count = -(-int(size) // bucket_bytes(context.memory))
    to_bucket = _BucketAssignment(tuple(by), max(1, min(_MOST_BUCKETS, count)), context.folder)
    files = tuple(Threads().map(to_bucket, _with_positions(itertools.chain([first], batches))))
    return Buckets(files, to_bucket.count, to_bucket.keyed(first, 0).schema, context)


def _with_positions(batches: Iterator[pa.Table]) -> Iterator[tuple[int, int, pa.Table]]:
    first = 0
    for number, batch in enumerate(batches):
        yield number, first, batch
        first += batch.num_rows


@dataclass(frozen=True)
class _BucketAssignment:
    """Sorts a batch by the bucket of each row and writes it: runs in a thread."""

    by: tuple[str, ...]
    count: int
    folder: Path

    def __call__(self, batch: tuple[int, int, pa.Table]) -> PartitionedFile:
        number, first, rows = batch
        rows = self.keyed(rows, first)
        return PartitionedFile.write(
            self.folder / f"bucket-{number:06d}.arrow", rows, self._bucket_of(rows), self.count
        )

    def keyed(self, rows: pa.Table, first: int) -> pa.Table:
        """Return rows with keys that are equal where they mean the same, and the position of each."""
        for name in self.by:
            rows = rows.set_column(rows.column_names.index(name), name, canonical(rows.column(name)))
        positions = np.arange(first, first + rows.num_rows, dtype=np.int64)
        return rows.append_column(POSITION, pa.array(positions))

    def _bucket_of(self, rows: pa.Table) -> np.ndarray:
        if self.count == 1:
            return np.zeros(rows.num_rows, dtype=np.uint16)
        hashes = pl.DataFrame(rows.select(list(self.by))).hash_rows(0).to_numpy()
        return below(hash_counters(hashes, 0), self.count).astype(np.uint16)


@dataclass(frozen=True)
class Runs:
    """Rows in several scratch files, each in the order of one column.

    Attributes:
        paths: Arrow IPC files of one record batch.
        order: The column: whole numbers, no two of them the same.
        schema: Names and types of the columns.
    """

    paths: tuple[Path, ...]
    order: str
    schema: pa.Schema

    def between(self, low: int, high: int) -> pa.Table:
        """Return the rows from `low` on and before `high`, in order."""
        parts = [self._part(path, low, high) for path in self.paths]
        together = pa.concat_tables([self.schema.empty_table(), *parts])
        order = np.argsort(together.column(self.order).to_numpy(), kind="stable")
        return together.take(pa.array(order)).combine_chunks()

    def delete(self) -> None:
        """Delete the files."""
        for path in self.paths:
            path.unlink()

    def _part(self, path: Path, low: int, high: int) -> pa.Table:
        # Mapped, because only a slice is looked at; the slice is copied by the caller, and then nothing is mapped any more.
        with pa.memory_map(str(path)) as file:
            rows = pa.ipc.open_file(file).get_batch(0)
        numbers = rows.column(self.schema.get_field_index(self.order)).to_numpy()
        start, end = np.searchsorted(numbers, [low, high])
        return pa.Table.from_batches([rows.slice(start, end - start)])


def write_run(rows: pa.Table, path: Path) -> Path:
    """Write rows, one or more, that are in the order of their run to a file, and return where it is."""
    with pa.ipc.new_file(str(path), rows.schema) as file:
        file.write_batch(rows.combine_chunks().to_batches()[0])
    return path
