"""From raw interactions to scratch files: one per split and shard, rows dealt by hash, so a shuffle sorts nothing large.

Every engine starts from here. So splits, order and bad rows cannot differ between engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.config import EtlConfig, RunConfig
from recsys_cli.errors import DataError
from recsys_cli.etl.read import Reader
from recsys_cli.events import Emit, Progress
from recsys_cli.features.hashing import below, hash_counters, mix, permutation
from recsys_cli.features.plan import FeaturePlan
from recsys_cli.features.split import SPLITS, TRAIN, AnySplit, Codes, FilesSplit, RandomSplit, assign

_SHARD_STREAM, _ORDER_STREAM = 2, 3


@dataclass(frozen=True)
class Staged:
    """Raw interactions by split and shard, and the tables to join.

    Attributes:
        shards: Arrow IPC files of each split, in order.
        rows: Rows of each split.
        tables: The dataset's other tables, whole, by name.
        schema: Names and raw types of the interactions' columns.
        seed: Decides the order inside a shard of train.
    """

    shards: dict[str, list[Path]]
    rows: dict[str, int]
    tables: dict[str, pa.Table]
    schema: pa.Schema
    seed: int

    def read(self, split: str, shard: int) -> pa.Table:
        """Return a shard's rows in their final order."""
        with pa.ipc.open_file(self.shards[split][shard]) as file:
            table = file.read_all().combine_chunks()
        if split != SPLITS[TRAIN]:
            return table
        return table.take(pa.array(permutation(table.num_rows, mix(self.seed, _ORDER_STREAM, shard))))


@dataclass
class _Writer:
    """Appends to the scratch file of one split and shard."""

    path: Path
    schema: pa.Schema
    rows: int = 0
    _file: pa.ipc.RecordBatchFileWriter | None = field(default=None, repr=False)

    def write(self, table: pa.Table) -> None:
        if self._file is None:
            self._file = pa.ipc.new_file(str(self.path), self.schema)
        self._file.write_table(table)
        self.rows += table.num_rows

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Stager:
    """Deals batches of raw rows to the files of their split and shard."""

    def __init__(self, folder: Path, schema: pa.Schema, config: EtlConfig, *, estimated_rows: int) -> None:
        self.folder = folder
        self.schema = schema
        self.config = config
        self.num_shards = max(1, -(-estimated_rows // config.shard_rows))
        self.next_row = 0
        self.writers: dict[str, list[_Writer]] = {split: [] for split in SPLITS}
        self.writers[SPLITS[TRAIN]] = [self._writer(SPLITS[TRAIN], shard) for shard in range(self.num_shards)]

    def add(self, batch: pa.Table, codes: Codes) -> None:
        """Deal a batch, whose rows are the next ones of the input, by the split codes of its rows.

        Raises:
            DataError: A value does not fit the type that its column has in the first file.
        """
        try:
            batch = batch.cast(self.schema).combine_chunks()
        except pa.ArrowInvalid as error:
            types = ", ".join(f"{field.name} {field.type}" for field in self.schema)
            raise DataError(
                f"the files with interactions differ in their types: {error}", hint=f"the first of them has {types}"
            ) from error
        rows = np.arange(self.next_row, self.next_row + batch.num_rows, dtype=np.uint64)
        self.next_row += batch.num_rows
        shards = below(hash_counters(rows, mix(self.config.seed, _SHARD_STREAM)), self.num_shards)
        # Train's shards come first, then one place for each held-out split, whose rows stay in order.
        places = np.where(codes == TRAIN, shards, self.num_shards + codes - 1).astype(np.uint16)
        dealt = batch.take(pa.array(np.argsort(places, kind="stable")))
        counts = np.bincount(places, minlength=self.num_shards + len(SPLITS) - 1)
        starts = np.concatenate(([0], np.cumsum(counts)))
        for place in np.flatnonzero(counts):
            self._writer_of(int(place)).write(dealt.slice(int(starts[place]), int(counts[place])))

    def close(self, tables: dict[str, pa.Table]) -> Staged:
        """Finish the files."""
        for writer in self._all():
            writer.close()
        filled = {split: [writer for writer in self.writers[split] if writer.rows] for split in SPLITS}
        return Staged(
            shards={split: [writer.path for writer in writers] for split, writers in filled.items()},
            rows={split: sum(writer.rows for writer in writers) for split, writers in filled.items()},
            tables=tables,
            schema=self.schema,
            seed=self.config.seed,
        )

    def _all(self) -> Iterator[_Writer]:
        for writers in self.writers.values():
            yield from writers

    def _writer_of(self, place: int) -> _Writer:
        if place < self.num_shards:
            return self.writers[SPLITS[TRAIN]][place]
        split = SPLITS[place - self.num_shards + 1]
        writers = self.writers[split]
        if not writers or writers[-1].rows >= self.config.shard_rows:
            writers.append(self._writer(split, len(writers)))
        return writers[-1]

    def _writer(self, split: str, shard: int) -> _Writer:
        return _Writer(self.folder / f"{split}-{shard:05d}.arrow", self.schema)


def stage(
    readers: dict[str, Reader], tables: dict[str, pa.Table], config: RunConfig, *, folder: Path, emit: Emit
) -> Staged:
    """Read the raw interactions once (twice where the split looks at columns) and deal them to scratch files.

    Args:
        readers: The interactions under "all", or one reader per split where the split is given as files.
        tables: The tables to join.
        config: The rule of the split, the columns that it may look at, shard size and seed.
        folder: An empty scratch folder.
        emit: Told how many rows were read.

    Raises:
        DataError: Rows cannot be read, or there is none.
    """
    estimated = sum(reader.estimated_rows() for reader in readers.values())
    stager = Stager(folder, next(iter(readers.values())).schema(), config.etl, estimated_rows=estimated)
    for batch, codes in _coded(readers, config.split, config.features):
        stager.add(batch, codes)
        emit(Progress("read interactions", stager.next_row, None))
    emit(Progress("read interactions", stager.next_row, stager.next_row))
    return stager.close(tables)


def _coded(readers: dict[str, Reader], split: AnySplit, plan: FeaturePlan) -> Iterator[tuple[pa.Table, Codes]]:
    """Yield batches of raw rows with the split code of each row."""
    if isinstance(split, FilesSplit):
        for name, reader in readers.items():
            for batch in reader.batches():
                yield batch, np.full(batch.num_rows, SPLITS.index(name), dtype=np.uint8)
        return
    reader = readers["all"]
    first = 0
    if isinstance(split, RandomSplit):
        for batch in reader.batches():
            yield batch, split.assign_rows(np.arange(first, first + batch.num_rows, dtype=np.uint64))
            first += batch.num_rows
        return
    names = {"user": plan.user, "timestamp": plan.timestamp}
    wanted: dict[str, str] = {key: column for key in split.reads if (column := names[key])}
    columns = _numbers(reader, wanted)
    codes = assign(split, len(next(iter(columns.values()))), columns)
    reader.rejected.clear()  # the second pass finds the same bad rows again
    for batch in reader.batches():
        yield batch, codes[first : first + batch.num_rows]
        first += batch.num_rows


def _numbers(reader: Reader, wanted: dict[str, str]) -> dict[str, npt.NDArray[np.int64]]:
    """Return columns of the interactions as whole numbers: times as they are, users numbered by first appearance."""
    parts: dict[str, list[pa.ChunkedArray]] = {key: [] for key in wanted}
    for batch in reader.batches():
        for key, name in wanted.items():
            parts[key].append(batch.column(name))
    columns = {}
    for key, name in wanted.items():
        values = pa.chunked_array(
            [chunk for part in parts[key] for chunk in part.chunks], type=None if parts[key] else pa.int64()
        )
        if values.null_count:
            raise DataError(f"column {name} has {values.null_count} nulls, so rows cannot be split by it")
        if key == "user":
            values = pa.chunked_array([values.combine_chunks().dictionary_encode().indices])
        columns[key] = values.cast(pa.int64()).to_numpy()
    return columns
