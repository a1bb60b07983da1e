"""Groups of rows in bounded memory: hash buckets by key in scratch files, the order within groups, and a merge back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from recsys_cli.cpu import Threads
from recsys_cli.features.columns import POSITION
from recsys_cli.features.hashing import below, hash_counters
from recsys_cli.ops.flow import Flow, OpContext
from recsys_cli.ops.scratch import PartitionedFile, Span, read
from recsys_cli.ops.values import canonical
from recsys_cli.packages import np, npt, pa, pl

_SHARE = 32
"""Divisor of the budget for the rows of a bucket: a sort needs several times their size, for two buckets at a time."""
_MAX_BUCKETS = 4096
_THREADS = 2
"""Number of concurrent buckets: more would cost memory, and the work on a bucket is partly parallel itself."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Buckets:
    """Rows in scratch files, with all rows of a key in the same bucket."""

    files: tuple[PartitionedFile, ...]
    count: int
    schema: pa.Schema
    context: OpContext

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return sum(int(file.starts[-1]) for file in self.files)

    def __iter__(self) -> Iterator[pa.Table]:
        """Yield the rows of each non-empty bucket, ordered by position."""
        for bucket in range(self.count):
            sizes = ((file, int(file.starts[bucket + 1] - file.starts[bucket])) for file in self.files)
            spans = [Span(file, bucket, 0, size) for file, size in sizes if size]
            if spans:
                yield read(spans, self.schema, self.schema.names)

    def map(self, function: Callable[[pa.Table], Result]) -> Iterator[Result]:
        """Yield a function's result for each non-empty bucket, and emit progress."""
        sized = Threads(_THREADS).map(lambda rows: (rows.num_rows, function(rows)), self)
        return self.context.track(self.context.name, sized, self.num_rows)

    def delete(self) -> None:
        """Delete the files."""
        for file in self.files:
            file.path.unlink()


def bucket_bytes(memory: int) -> int:
    """Return the target size of a bucket for a budget in MiB."""
    return (memory << 20) // _SHARE


def partition(rows: Flow, by: Sequence[str], columns: Sequence[str], context: OpContext) -> Buckets:
    """Partition materialized rows into buckets by key, with further columns.

    NaN equals null, and null is a key of its own; -0.0 equals 0.0.
    """
    names = list(dict.fromkeys((*by, *columns)))
    batches = rows.batches(names)
    first = next(batches, None)
    if first is None:
        return Buckets((), 1, pa.schema([]), context)
    size = (first.nbytes / first.num_rows + 8) * (rows.most or 0)  # 8 for the position
    count = -(-int(size) // bucket_bytes(context.memory))
    assignment = _BucketAssignment(tuple(by), max(1, min(_MAX_BUCKETS, count)), context.folder)
    files = tuple(Threads().map(assignment, _with_positions(itertools.chain([first], batches))))
    return Buckets(files, assignment.count, assignment.keyed(first, 0).schema, context)


def _with_positions(batches: Iterator[pa.Table]) -> Iterator[tuple[int, int, pa.Table]]:
    first = 0
    for number, batch in enumerate(batches):
        yield number, first, batch
        first += batch.num_rows


@dataclass(frozen=True)
class _BucketAssignment:
    """Writes a batch as a partitioned file."""

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
        """Return rows with canonical keys and their positions."""
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
    """Sorted runs: rows in several scratch files, each sorted by one column.

    Attributes:
        paths: Arrow IPC files of one record batch.
        order: The sort column: unique integers.
    """

    paths: tuple[Path, ...]
    order: str
    schema: pa.Schema

    def between(self, low: int, high: int) -> pa.Table:
        """Return the rows from `low` to before `high`, in order."""
        parts = [self._part(path, low, high) for path in self.paths]
        rows = pa.concat_tables([self.schema.empty_table(), *parts])
        order = np.argsort(rows.column(self.order).to_numpy(), kind="stable")
        return rows.take(pa.array(order)).combine_chunks()

    def delete(self) -> None:
        """Delete the files."""
        for path in self.paths:
            path.unlink()

    def _part(self, path: Path, low: int, high: int) -> pa.Table:
        # Memory-mapped, because only a slice is read; the caller copies the slice, which ends the mapping.
        with pa.memory_map(str(path)) as file:
            rows = pa.ipc.open_file(file).get_batch(0)
        numbers = rows.column(self.schema.get_field_index(self.order)).to_numpy()
        start, end = np.searchsorted(numbers, [low, high])
        return pa.Table.from_batches([rows.slice(start, end - start)])


def write_run(rows: pa.Table, path: Path) -> Path:
    """Write the sorted rows of a run, at least one."""
    with pa.ipc.new_file(str(path), rows.schema) as file:
        file.write_batch(rows.combine_chunks().to_batches()[0])
    return path


Codes: TypeAlias = "npt.NDArray[np.uint64]"
Positions: TypeAlias = "npt.NDArray[np.int64]"
_SIGN = 1 << 63


@dataclass(frozen=True)
class GroupOrder:
    """A permutation that makes groups contiguous and ordered.

    Attributes:
        order: Positions of the rows; shape (N,).
        starts: Start of each group within `order`; shape (G,).
    """

    order: Positions
    starts: Positions

    @property
    def ends(self) -> Positions:
        """End of each group within `order`, exclusive; shape (G,)."""
        return np.append(self.starts[1:], len(self.order)).astype(np.int64)

    @property
    def numbers(self) -> Positions:
        """Group number of each row of `order`; shape (N,)."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.order)))


def group(rows: pa.Table, by: Sequence[str], order_by: Sequence[str]) -> GroupOrder:
    """Group rows of complete groups by some columns, and order each group by others, then by position.

    Keys have no NaN and -0.0. Null sorts last, and is a key of its own; in `order_by`, NaN equals null.
    """
    keys = [_codes(rows.column(name)) for name in by]
    order = np.arange(rows.num_rows)
    for codes in [*keys, *(_codes(rows.column(name)) for name in order_by)][::-1]:
        order = order[_stable(codes[order])]
    new = np.zeros(rows.num_rows, dtype=bool)
    new[:1] = True
    for codes in keys:
        ordered = codes[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    return GroupOrder(order, np.flatnonzero(new))


def _stable(codes: Codes) -> Positions:
    """Return the stable argsort of codes.

    Code and position are packed into 64 bits if they fit: a sort of integers is many times faster than an argsort.
    """
    bits = max(1, len(codes) - 1).bit_length()
    if not len(codes) or int(codes.max()).bit_length() + bits > 64:
        return np.argsort(codes, kind="stable")
    packed = codes << np.uint64(bits)
    packed |= np.arange(len(codes), dtype=np.uint64)
    packed.sort()
    packed &= np.uint64((1 << bits) - 1)
    return packed.view(np.int64)


def _codes(values: pa.ChunkedArray) -> Codes:
    """Return order-preserving codes from 0; null has the greatest."""
    series = pl.Series(pl.from_arrow(values))
    if series.dtype.is_float():
        series = series.fill_nan(None)
    valid = series.is_not_null().to_numpy()
    if not valid.any():
        return np.zeros(len(series), dtype=np.uint64)
    codes = _bits(series)
    low, high = codes[valid].min(), codes[valid].max()
    if valid.all():
        return codes - low
    if int(high) - int(low) == 2**64 - 1:  # the full range has no free code for null
        codes, low, high = _ranks(series), np.uint64(1), np.uint64(len(series))
    return np.where(valid, codes - low, high - low + np.uint64(1))


def _bits(series: pl.Series) -> Codes:
    """Return order-preserving unsigned integers, arbitrary for null."""
    kind = series.dtype
    if kind.is_float():
        bits = (series.cast(pl.Float64).fill_null(0.0).to_numpy() + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
        return np.where(bits & np.uint64(_SIGN), ~bits, bits | np.uint64(_SIGN))
    if kind == pl.UInt64:
        return series.fill_null(0).to_numpy()
    if kind.is_integer() or isinstance(kind, pl.Boolean | pl.Date | pl.Datetime | pl.Duration):
        return series.to_physical().cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64) ^ np.uint64(_SIGN)
    return _ranks(series)


def _ranks(series: pl.Series) -> Codes:
    return series.rank("dense").cast(pl.UInt64).fill_null(0).to_numpy()
