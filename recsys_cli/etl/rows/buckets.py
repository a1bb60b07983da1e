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
from recsys_cli.etl.join_keys import canonical
from recsys_cli.etl.packed import with_texts
from recsys_cli.etl.pieces import Piece, Span, read
from recsys_cli.etl.rows.flow import Desk, Flow
from recsys_cli.features.hashing import below, hash_counters

_SHARE = 32
"""What part of the budget a bucket's rows take: a few times as much is needed to put them in order, of two at a time."""
_MOST_BUCKETS = 4096
_AT_ONCE = 2
"""Buckets in work at the same time: more would cost memory, and a bucket's work is spread over the processors in part."""
Result = TypeVar("Result")
POSITION = "\x01position"
"""A column (int64) with the place of a row among all of its flow."""


@dataclass(frozen=True)
class Buckets:
    """Rows in scratch files, such that those with one key are in one bucket.

    Attributes:
        pieces: A file for each batch, with a record batch for each bucket.
        count: How many buckets there are.
        schema: The rows' columns.
        desk: Whose they are.
    """

    pieces: tuple[Piece, ...]
    count: int
    schema: pa.Schema
    desk: Desk

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(int(piece.starts[-1]) for piece in self.pieces)

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield each bucket that has rows, in the order of their positions."""
        for bucket in range(self.count):
            sizes = ((piece, int(piece.starts[bucket + 1] - piece.starts[bucket])) for piece in self.pieces)
            spans = [Span(piece, bucket, 0, size) for piece, size in sizes if size]
            if spans:
                yield with_texts(read(spans, self.schema, self.schema.names))

    def map(self, work: Callable[[pa.Table], Result]) -> Iterator[Result]:
        """Yield what is made of each bucket that has rows, and say how far that is."""
        sized = Threads(_AT_ONCE).map(lambda rows: (rows.num_rows, work(rows)), self)
        return self.desk.watch(self.desk.name, sized, self.num_rows)

    def delete(self) -> None:
        """Delete the files."""
        for piece in self.pieces:
            piece.path.unlink()


def bucket_bytes(memory: int) -> int:
    """Return the size of a bucket's rows for a budget in MiB."""
    return (memory << 20) // _SHARE


def partition(rows: Flow, by: Sequence[str], columns: Sequence[str], desk: Desk) -> Buckets:
    """Deal settled rows to buckets.

    Args:
        rows: The rows.
        by: The key. NaN is null in it, and null a value like any other; -0.0 is 0.0.
        columns: The columns to keep beside it.
        desk: Says where scratch files go, and how large a bucket may be.
    """
    names = list(dict.fromkeys((*by, *columns)))
    batches = rows.batches(names)
    first = next(batches, None)
    if first is None:
        return Buckets((), 1, pa.schema([]), desk)
    size = (first.nbytes / first.num_rows + 8) * (rows.most or 0)  # 8 for the position
    count = -(-int(size) // bucket_bytes(desk.memory))
    deal = _Deal(tuple(by), max(1, min(_MOST_BUCKETS, count)), desk.folder)
    pieces = tuple(Threads().map(deal, _placed(itertools.chain([first], batches))))
    return Buckets(pieces, deal.count, deal.keyed(first, 0).schema, desk)


def _placed(batches: Iterator[pa.Table]) -> Iterator[tuple[int, int, pa.Table]]:
    first = 0
    for number, batch in enumerate(batches):
        yield number, first, batch
        first += batch.num_rows


@dataclass(frozen=True)
class _Deal:
    """Sorts a batch by the bucket of each row and writes it: runs in a thread."""

    by: tuple[str, ...]
    count: int
    folder: Path

    def __call__(self, batch: tuple[int, int, pa.Table]) -> Piece:
        number, first, rows = batch
        rows = self.keyed(rows, first)
        return Piece.write(self.folder / f"bucket-{number:06d}.arrow", rows, self._places(rows), self.count)

    def keyed(self, rows: pa.Table, first: int) -> pa.Table:
        """Return rows with keys that are equal where they mean the same, and the position of each."""
        for name in self.by:
            rows = rows.set_column(rows.column_names.index(name), name, canonical(rows.column(name)))
        positions = np.arange(first, first + rows.num_rows, dtype=np.int64)
        return rows.append_column(POSITION, pa.array(positions))

    def _places(self, rows: pa.Table) -> np.ndarray:
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
