"""Staging: raw interactions in partitioned scratch files, by split and by shard of train.

A hash assigns each row of train to a shard, so the shuffle only permutes rows within shards. Independent of the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.config import EtlConfig, RunConfig
from recsys_cli.cpu import Threads
from recsys_cli.events import Emit, Progress
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.hashing import below, hash_counters, mix, permutation
from recsys_cli.features.spec import is_list
from recsys_cli.features.split import SPLITS, TRAIN, AnySplit, Codes, FilesSplit, RandomSplit, assign
from recsys_cli.ops.program import INTERACTIONS
from recsys_cli.ops.scratch import PartitionedFile, Rows, Span, read, spill_rows, typed

_SHARD_STREAM, _ORDER_STREAM = 2, 3
_MAX_SHARD_ROWS, _SHARD_BYTES = 2_000_000, 128 << 20


@dataclass(frozen=True)
class Staged:
    """Raw interactions by split and shard, and the dimension tables.

    The partitions are the shards of train, then one per held-out split. The shards of a held-out split are consecutive
    rows.

    Attributes:
        num_shards: Number of train shards, empty ones included.
        shard_rows: Number of rows of a held-out shard.
        schema: The raw columns; for rows with a time also ROW_NUMBER, the tie-breaker.
        seed: Seed of the order within a train shard.
        raw: The columns before the filters; None without filters.
    """

    files: tuple[PartitionedFile, ...]
    rows: Mapping[str, int]
    num_shards: int
    shard_rows: int
    tables: Mapping[str, pa.Table]
    schema: pa.Schema
    seed: int
    raw: pa.Schema | None = None

    @property
    def inputs(self) -> dict[str, pa.Schema]:
        """The raw columns of all tables."""
        joined = {name: table.schema for name, table in self.tables.items()}
        read = pa.schema([field for field in self.schema if field.name != ROW_NUMBER])
        return {INTERACTIONS: read if self.raw is None else self.raw} | joined

    @property
    def shards(self) -> dict[str, range]:
        """The shard numbers of each split."""
        held_out = {split: range(-(-self.rows[split] // self.shard_rows)) for split in SPLITS[1:]}
        return {SPLITS[TRAIN]: range(self.num_shards if self.rows[SPLITS[TRAIN]] else 0), **held_out}

    def partitions(self, split: str) -> range:
        """Return the partitions of a split."""
        if split == SPLITS[TRAIN]:
            return range(self.num_shards)
        partition = self.num_shards + SPLITS.index(split) - 1
        return range(partition, partition + 1)

    def count(self, files: Sequence[PartitionedFile]) -> dict[str, int]:
        """Return the number of rows of each split in files."""
        counts = sum((np.diff(file.starts) for file in files), np.zeros(self.num_shards + len(SPLITS) - 1, np.int64))
        return {split: int(counts[list(self.partitions(split))].sum()) for split in SPLITS}

    def batches(self, file: PartitionedFile, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a file, partition by partition."""
        names = self.schema.names if columns is None else list(columns)
        return file.tables(self.schema, names)

    def read(self, split: str, shard: int, *, columns: Sequence[str] | None = None, shuffled: bool = True) -> pa.Table:
        """Return the rows of a shard; with `shuffled`, train rows in their final order, at the cost of a copy."""
        if split == SPLITS[TRAIN]:
            table = self._of(shard, 0, None, columns)
            if shuffled:
                table = table.take(pa.array(self.order(shard, table.num_rows)))
        else:
            partition = self.partitions(split)[0]
            table = self._of(partition, shard * self.shard_rows, (shard + 1) * self.shard_rows, columns)
        return table

    def order(self, shard: int, rows: int) -> npt.NDArray[np.int64]:
        """Return the input position of each row of a train shard in the final order; shape (rows,)."""
        return permutation(rows, mix(self.seed, _ORDER_STREAM, shard))

    def _of(self, partition: int, first: int, last: int | None, columns: Sequence[str] | None) -> pa.Table:
        """Return rows first to last - 1 of a partition, in contiguous memory."""
        names = self.schema.names if columns is None else list(columns)
        spans = []
        before = 0
        for file in self.files:
            start, end = int(file.starts[partition]), int(file.starts[partition + 1])
            low = max(first - before, 0)
            high = end - start if last is None else min(last - before, end - start)
            if low < high:
                spans.append(Span(file, partition, low, high))
            before += end - start
        return read(spans, self.schema, names)


@dataclass(frozen=True)
class _Batch:
    """A batch of raw rows.

    Attributes:
        first: Number of the first row in the raw input; not used for rows with a ROW_NUMBER.
        codes: The split code of each row; None for a split by hash of the row number.
    """

    number: int
    first: int
    rows: pa.Table
    codes: Codes | None


@dataclass(frozen=True)
class ShardAssignment:
    """Writes a batch as a partitioned file: a task of a thread pool.

    `numbered` rows keep their number in the raw input.
    """

    folder: Path
    schema: pa.Schema
    num_shards: int
    seed: int
    split: AnySplit
    numbered: bool = False

    def __call__(self, batch: _Batch) -> PartitionedFile:
        """Write a batch."""
        rows = batch.rows
        counted = _numbers(rows, batch.first)
        numbers = counted.view(np.uint64)
        if ROW_NUMBER in rows.column_names:
            rows = rows.drop_columns([ROW_NUMBER])
        codes = batch.codes
        if codes is None:
            assert isinstance(self.split, RandomSplit)
            codes = self.split.assign_rows(numbers)
        shards = below(hash_counters(numbers, mix(self.seed, _SHARD_STREAM)), self.num_shards)
        partitions = np.where(codes == TRAIN, shards, self.num_shards - 1 + codes.astype(np.intp))
        # Small types are faster to sort.
        partitions = partitions.astype(np.min_scalar_type(self.num_shards + len(SPLITS)))
        path = self.folder / f"batch-{batch.number:06d}.arrow"
        num_partitions = self.num_shards + len(SPLITS) - 1
        return PartitionedFile.write(
            path, typed(rows, self.schema), partitions, num_partitions, counted if self.numbered else None
        )


def stage(
    sources: Mapping[str, Rows],
    tables: Mapping[str, pa.Table],
    config: RunConfig,
    *,
    estimated_rows: int,
    folder: Path,
    emit: Emit,
) -> Staged:
    """Read the raw interactions and write their rows to partitioned files, by split and shard.

    The input is read once; a split by columns reads it again from a spill file. `sources` has the interactions under
    "all", or one source per split of a files split; `estimated_rows` is for the number of shards.
    """
    names = next(iter(sources.values())).schema()
    schema = pa.schema([field for field in names if field.name != ROW_NUMBER])
    shard_rows = rows_per_shard(config.etl, schema)
    num_shards = max(1, -(-estimated_rows // shard_rows))
    numbered = config.features.timestamp is not None
    to_shards = ShardAssignment(folder, schema, num_shards, config.etl.seed, config.split, numbered)
    files = []
    done = 0
    for file in Threads().map(to_shards, _coded(sources, config, folder)):
        files.append(file)
        done += int(file.starts[-1])
        emit(Progress("read interactions", done, None))
    emit(Progress("read interactions", done, done))
    if numbered:
        schema = schema.append(pa.field(ROW_NUMBER, _number_type(files)))
    staged = Staged(tuple(files), {}, num_shards, shard_rows, tables, schema, config.etl.seed)
    return replace(staged, rows=staged.count(files))


def _number_type(files: Sequence[PartitionedFile]) -> pa.DataType:
    """Return the type of row numbers, int32 if possible: they are a large part of a prepared row."""
    return pa.int32() if max((file.last for file in files), default=0) < 2**31 else pa.int64()


def rows_per_shard(config: EtlConfig, schema: pa.Schema) -> int:
    """Return the configured number of rows per shard, or a default by the width of a row."""
    if config.shard_rows is not None:
        return config.shard_rows
    return min(_MAX_SHARD_ROWS, _SHARD_BYTES // max(1, sum(_width(field.type) for field in schema)))


def _width(kind: pa.DataType) -> int:
    """Return the approximate size of a value, in bytes."""
    if is_list(kind):
        return 4 + 8 * _width(kind.value_type)
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:
        return 24  # a string


def _coded(sources: Mapping[str, Rows], config: RunConfig, folder: Path) -> Iterator[_Batch]:
    number = first = 0
    for rows, codes in _with_codes(sources, config, folder):
        if rows.num_rows:
            yield _Batch(number, first, rows, codes)
            number += 1
            first += 0 if ROW_NUMBER in rows.column_names else rows.num_rows


def _numbers(rows: pa.Table, first: int) -> npt.NDArray[np.int64]:
    """Return the ROW_NUMBER of each row, or consecutive numbers from `first`."""
    if ROW_NUMBER in rows.column_names:
        return rows.column(ROW_NUMBER).to_numpy()
    return np.arange(first, first + rows.num_rows, dtype=np.int64)


def _with_codes(
    sources: Mapping[str, Rows], config: RunConfig, folder: Path
) -> Iterator[tuple[pa.Table, Codes | None]]:
    split = config.split
    if isinstance(split, FilesSplit):
        first = 0
        for name, source in sources.items():
            last = -1
            for batch in source.batches():
                rows = batch
                if rows.num_rows and ROW_NUMBER in rows.column_names:  # ROW_NUMBER restarts in each source
                    numbers = rows.column(ROW_NUMBER).to_numpy() + first
                    last = int(numbers[-1])
                    rows = rows.set_column(rows.column_names.index(ROW_NUMBER), ROW_NUMBER, pa.array(numbers))
                yield rows, np.full(rows.num_rows, SPLITS.index(name), dtype=np.uint8)
            first = max(first, last + 1)
    elif isinstance(split, RandomSplit):
        for rows in sources["all"].batches():
            yield rows, None
    else:
        plan = config.features
        names = {"user": plan.user, "timestamp": plan.timestamp}
        keys: dict[str, str] = {key: plan.raw_name(column) for key in split.reads if (column := names[key])}
        spill, columns = spill_rows(sources["all"], keys, folder)
        yield from zip(spill.batches(), assign(split, columns), strict=True)
        spill.delete()
