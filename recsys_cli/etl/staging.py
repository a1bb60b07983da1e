"""Staging: raw interactions and sampled negatives in partitioned scratch files, by split and by shard of train.

A hash assigns each row of train to a shard, so the shuffle only permutes rows within shards. Independent of the engine.
A negative avoids the interactions of the user in its own and earlier splits, never in later ones: items that train never samples
would leak the held-out items.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.config import EtlConfig, RunConfig
from recsys_cli.cpu import Threads
from recsys_cli.etl.engine import Executor
from recsys_cli.etl.read_parts import PartRows, ScratchPart
from recsys_cli.events import Emit, Progress
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.features.hashing import below, can_hash, hash_counters, mix, permutation
from recsys_cli.features.spec import is_list
from recsys_cli.features.split import SPLITS, TRAIN, AnySplit, Codes, FilesSplit, RandomSplit
from recsys_cli.ops import NegativeSampling
from recsys_cli.ops.program import INTERACTIONS
from recsys_cli.ops.scratch import NumberFile, Numbering, PartitionedFile, Rows, Span, SpillFile, read, typed

_SHARD_STREAM, _ORDER_STREAM = 2, 3
_MAX_SHARD_ROWS, _SHARD_BYTES = 2_000_000, 128 << 20
MAX_SHARDS = 1_000
"""Number of shards from which rows are dealt to groups of shards first: spans of single shards would be short."""


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
        tie_seed: Seed of the order of ties; None for that of the rows.
    """

    files: tuple[PartitionedFile, ...]
    rows: Mapping[str, int]
    num_shards: int
    shard_rows: int
    tables: Mapping[str, pa.Table]
    schema: pa.Schema
    seed: int
    raw: pa.Schema | None = None
    tie_seed: int | None = None

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
    """A batch of raw rows, in memory or in a scratch file.

    Attributes:
        first: Number of the first row in the raw input, or of the row with the ROW_NUMBER 0.
        codes: The split code of each row; None for a split by hash of the row number.
    """

    number: int
    first: int
    rows: pa.Table | ScratchPart
    codes: Codes | None


@dataclass(frozen=True)
class ShardAssignment:
    """Writes a batch as a partitioned file: a task of an executor.

    Attributes:
        per_partition: Number of shards in a partition of the file.
        numbered: Whether the rows keep their number in the raw input.
    """

    folder: Path
    schema: pa.Schema
    num_shards: int
    seed: int
    split: AnySplit
    numbered: bool = False
    per_partition: int = 1

    def __call__(self, batch: _Batch) -> PartitionedFile:
        """Write a batch."""
        rows = batch.rows if isinstance(batch.rows, pa.Table) else batch.rows.read()
        counted = _numbers(rows, batch.first)
        numbers = counted.view(np.uint64)
        if ROW_NUMBER in rows.column_names:
            rows = rows.drop_columns([ROW_NUMBER])
        codes = batch.codes
        if codes is None:
            assert isinstance(self.split, RandomSplit)
            codes = self.split.assign_rows(numbers)
        groups = self.shards_of(numbers) // np.uint64(self.per_partition)
        partitions = np.where(codes == TRAIN, groups, self.num_groups - 1 + codes.astype(np.intp))
        # Small types are faster to sort.
        partitions = partitions.astype(np.min_scalar_type(self.num_groups + len(SPLITS)))
        path = self.folder / f"batch-{batch.number:06d}.arrow"
        kept = counted if self.numbered or self.per_partition > 1 else None
        return PartitionedFile.write(
            path, typed(rows, self.schema), partitions, self.num_groups + len(SPLITS) - 1, kept
        )

    @property
    def num_groups(self) -> int:
        """Number of partitions of train."""
        return -(-self.num_shards // self.per_partition)

    def shards_of(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return the train shard of each row number."""
        return below(hash_counters(numbers, mix(self.seed, _SHARD_STREAM)), self.num_shards)


@dataclass(frozen=True)
class _Run:
    """Consecutive spans of one partition, at the first of two levels."""

    number: int
    partition: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class _SecondLevel:
    """Writes a run as a file with a partition per shard: a task of an executor."""

    first: ShardAssignment
    schema: pa.Schema

    def __call__(self, run: _Run) -> PartitionedFile:
        """Write a run."""
        rows = read(run.spans, self.schema, self.schema.names)
        numbers = rows.column(ROW_NUMBER).to_numpy().astype(np.int64)
        held_out = run.partition - self.first.num_groups
        num_shards = self.first.num_shards
        partitions = np.full(len(numbers), num_shards + held_out)
        if held_out < 0:
            partitions = self.first.shards_of(numbers.view(np.uint64)).astype(np.intp)
        path = self.first.folder / f"run-{run.number:06d}.arrow"
        rows = rows.drop_columns([ROW_NUMBER])
        kept = numbers if self.first.numbered else None
        return PartitionedFile.write(path, rows, partitions, num_shards + len(SPLITS) - 1, kept)


def _runs(files: Sequence[PartitionedFile], num_partitions: int, num_rows: int) -> Iterator[_Run]:
    """Yield runs of about `num_rows` rows, by partition and in the order of the files."""
    number = 0
    for partition in range(num_partitions):
        spans: list[Span] = []
        for file in files:
            size = int(file.starts[partition + 1] - file.starts[partition])
            if spans and sum(span.last for span in spans) + size > num_rows:
                yield _Run(number, partition, tuple(spans))
                number, spans = number + 1, []
            if size:
                spans.append(Span(file, partition, 0, size))
        if spans:
            yield _Run(number, partition, tuple(spans))
            number += 1


def stage(
    sources: Mapping[str, Rows],
    tables: Mapping[str, pa.Table],
    config: RunConfig,
    *,
    estimated_rows: int,
    folder: Path,
    emit: Emit,
    executor: Executor | None = None,
) -> Staged:
    """Read the raw interactions and write their rows to partitioned files, by split and shard.

    The input is read once; a split by columns reads it again from a spill file. `sources` has the interactions under
    "all", or one source per split of a files split; `estimated_rows` is for the number of shards. The executor deals the rows of
    scratch files, and threads those of this process.
    """
    names = next(iter(sources.values())).schema()
    schema = pa.schema([field for field in names if field.name != ROW_NUMBER])
    shard_rows = rows_per_shard(config.etl, schema)
    num_shards = max(1, -(-estimated_rows // shard_rows))
    numbered = config.features.timestamp is not None
    on_workers = all(isinstance(source, PartRows) for source in sources.values())
    executor = executor if executor is not None and on_workers else Threads()
    task = "assign to shards" if on_workers else "read interactions"
    per_partition = math.isqrt(num_shards) if num_shards > MAX_SHARDS else 1
    to_shards = ShardAssignment(folder, schema, num_shards, config.etl.seed, config.split, numbered, per_partition)
    files = []
    done = 0
    dealt: deque[Path | None] = deque()
    for file in executor.map(to_shards, _noted(_coded(sources, config, folder), dealt)):
        files.append(file)
        if (path := dealt.popleft()) is not None:
            path.unlink()
        done += int(file.starts[-1])
        emit(Progress(task, done, None))
    emit(Progress(task, done, done))
    with_numbers = schema.append(pa.field(ROW_NUMBER, _number_type(files)))
    if per_partition > 1:
        runs = _runs(files, to_shards.num_groups + len(SPLITS) - 1, 2 * shard_rows)
        first, files = files, list(executor.map(_SecondLevel(to_shards, with_numbers), runs))
        for file in first:
            file.path.unlink()
    if numbered:
        schema = with_numbers
    staged = Staged(tuple(files), {}, num_shards, shard_rows, tables, schema, config.etl.seed)
    return replace(staged, rows=staged.count(files), tie_seed=config.split.tie_seed)


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


def _noted(batches: Iterator[_Batch], paths: deque[Path | None]) -> Iterator[_Batch]:
    """Yield batches, and append their scratch files; None for those in memory."""
    for batch in batches:
        paths.append(batch.rows.path if isinstance(batch.rows, ScratchPart) else None)
        yield batch


def _coded(sources: Mapping[str, Rows], config: RunConfig, folder: Path) -> Iterator[_Batch]:
    number = 0
    for rows, codes, first in _with_codes(sources, config, folder):
        if rows.num_rows:
            yield _Batch(number, first, rows, codes)
            number += 1


def _numbers(rows: pa.Table, first: int) -> npt.NDArray[np.int64]:
    """Return the ROW_NUMBER of each row, or consecutive numbers, from `first`."""
    if ROW_NUMBER in rows.column_names:
        return rows.column(ROW_NUMBER).to_numpy() + first
    return np.arange(first, first + rows.num_rows, dtype=np.int64)


_Coded: TypeAlias = "tuple[pa.Table | ScratchPart, Codes | None, int]"


def _with_codes(sources: Mapping[str, Rows], config: RunConfig, folder: Path) -> Iterator[_Coded]:
    """Yield batches of rows, their codes, and what to add to their numbers."""
    split = config.split
    if isinstance(split, FilesSplit):
        first = 0
        for name, source in sources.items():
            after = first
            for rows, before, end in _counted(source):  # the numbers restart in each source
                yield rows, np.full(rows.num_rows, SPLITS.index(name), dtype=np.uint8), first + before
                after = first + end
            first = after
    elif isinstance(split, RandomSplit):
        for rows, first, _ in _counted(sources["all"]):
            yield rows, None, first
    else:
        plan = config.features
        kinds = {field.name: field.type for field in sources["all"].schema()}
        shown = plan.impression and kinds.get(plan.raw_name(plan.impression))
        numbered = None if split.tie_seed is None else ROW_NUMBER
        names = {"user": plan.user, "timestamp": plan.timestamp, "number": numbered}
        names["impression"] = plan.impression if shown is not None and can_hash(shown) else None
        reads = (*split.reads, "number")
        keys: dict[str, str] = {key: plan.raw_name(column) for key in reads if (column := names[key])}
        numbers, source = NumberFile(keys, folder / "numbers.arrow"), sources["all"]
        if isinstance(source, PartRows):
            read = [name for name in dict.fromkeys(keys.values()) if name in source.schema().names]
            for _ in numbers.write(_over_all(part, part.read(read)) for part in source.parts):
                pass
            spill = None
        else:
            spill = SpillFile.write(numbers.write(source.batches()), source.schema(), folder / "rows.arrow")
        coded = zip(_counted(spill or source), split.codes(numbers.read), strict=True)
        for (rows, first, _), codes in coded:
            yield rows, codes, first
        if spill is not None:
            spill.delete()


def _over_all(part: ScratchPart, rows: pa.Table) -> pa.Table:
    """Return rows of a part with numbers over all parts, if they have numbers in the part."""
    if ROW_NUMBER not in rows.column_names:
        return rows
    numbers = pc.add(rows.column(ROW_NUMBER), pa.scalar(part.first, pa.int64()))
    return rows.drop_columns([ROW_NUMBER]).append_column(ROW_NUMBER, numbers)


def _counted(source: Rows) -> Iterator[tuple[pa.Table | ScratchPart, int, int]]:
    """Yield batches of rows, what to add to their numbers, and the number after their last row."""
    if isinstance(source, PartRows):
        for part in source.parts:
            yield part, part.first, part.first + part.last + 1
        return
    done = end = 0
    for rows in source.batches():
        is_numbered = ROW_NUMBER in rows.column_names
        if rows.num_rows:
            end = rows.column(ROW_NUMBER)[-1].as_py() + 1 if is_numbered else done + rows.num_rows
        yield rows, 0 if is_numbered else done, end
        done += rows.num_rows


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
