"""Partitioned scratch files: one file per input batch, with one record batch per partition."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recsys_cli.features.columns import ROW_NUMBER


@dataclass(frozen=True)
class PartitionedFile:
    """A scratch file with a batch of raw rows, sorted by partition.

    Attributes:
        path: An Arrow IPC file with one record batch per partition.
        starts: Start of each partition among the rows, and the number of rows; shape (P + 1,).
        first: Number of the first row, the base of the ROW_NUMBER offsets; None for absolute or absent row numbers.
        last: Number of the last row.
    """

    path: Path
    starts: npt.NDArray[np.int64]
    first: int | None = None
    last: int = 0

    @classmethod
    def write(
        cls,
        path: Path,
        rows: pa.Table,
        partitions: npt.NDArray[np.integer],
        num_partitions: int,
        numbers: npt.NDArray[np.int64] | None = None,
    ) -> PartitionedFile:
        """Write rows, at least one, sorted by partition.

        `numbers`, those of the rows in the raw input, ascending, become the ROW_NUMBER; None for no ROW_NUMBER.
        """
        order = np.argsort(partitions, kind="stable")
        starts = np.concatenate(([0], np.cumsum(np.bincount(partitions, minlength=num_partitions))))
        table = rows.combine_chunks().take(pa.array(order))
        first = None
        if numbers is not None:
            first, offsets = _from_first(numbers, order)
            table = table.append_column(ROW_NUMBER, pa.array(offsets))
        sorted_rows = table.to_batches()[0]
        with pa.ipc.new_file(str(path), sorted_rows.schema) as file:
            for start, end in itertools.pairwise(starts.tolist()):
                file.write_batch(sorted_rows.slice(start, end - start))
        return cls(path, starts, first, 0 if numbers is None else int(numbers[-1]))

    def tables(self, schema: pa.Schema, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the columns `names` of the schema, partition by partition."""
        with pa.OSFile(str(self.path)) as source:
            file = pa.ipc.open_file(source, options=_options(schema, names))
            for partition in range(file.num_record_batches):
                yield _numbered(pa.Table.from_batches([file.get_batch(partition)]).select(names), self.first, schema)

    def batch(self, partition: int, options: pa.ipc.IpcReadOptions | None) -> pa.RecordBatch:
        """Return the rows of a partition, with the ROW_NUMBER offsets of the file."""
        # Read, not memory-mapped: all mapped pages would count as memory of this process.
        with pa.OSFile(str(self.path)) as file:
            return pa.ipc.open_file(file, options=options).get_batch(partition)


@dataclass(frozen=True)
class Span:
    """Rows first to last - 1 of a partition of a file."""

    file: PartitionedFile
    partition: int
    first: int
    last: int


def read(spans: Sequence[Span], schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    """Return the columns `names` of rows of several files, in contiguous memory."""
    options = _options(schema, names)
    tables = [pa.table({name: pa.array([], schema.field(name).type) for name in names})]
    for span in spans:
        rows = span.file.batch(span.partition, options).slice(span.first, span.last - span.first)
        tables.append(_numbered(pa.Table.from_batches([rows]).select(names), span.file.first, schema))
    return pa.concat_tables(tables).combine_chunks()


def _from_first(numbers: npt.NDArray[np.int64], order: npt.NDArray[np.int64]) -> tuple[int, npt.NDArray[np.integer]]:
    """Return the first number, and all offsets from it, reordered."""
    first, last = int(numbers[0]), int(numbers[-1])
    if last - first + 1 == len(numbers) <= 2**32:  # without gaps
        return first, order.astype(np.uint32)
    offsets = numbers - first
    return first, (offsets.astype(np.uint32) if last - first < 2**32 else offsets)[order]


def _numbered(rows: pa.Table, first: int | None, schema: pa.Schema) -> pa.Table:
    if first is None or ROW_NUMBER not in rows.column_names:
        return rows
    position, field = rows.column_names.index(ROW_NUMBER), schema.field(ROW_NUMBER)
    offsets = rows.column(position).to_numpy()
    numbers = np.add(offsets, first, dtype=np.dtype(str(field.type)), casting="unsafe")
    return rows.set_column(position, field, pa.array(numbers))


def _options(schema: pa.Schema, names: Sequence[str]) -> pa.ipc.IpcReadOptions | None:
    """Return the options to read some columns; None to read all, faster from half of them on."""
    if 2 * len(names) > len(schema):
        return None
    return pa.ipc.IpcReadOptions(included_fields=sorted(schema.get_field_index(name) for name in names))
