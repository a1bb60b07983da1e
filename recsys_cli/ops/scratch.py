"""Scratch files: rows in memory-mapped Arrow files, as they come or partitioned by a number."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recsys_cli.errors import DataError
from recsys_cli.features.columns import ROW_NUMBER
from recsys_cli.packages import np, npt, pa, pc, pl


class Rows(Protocol):
    """A source of interactions in batches, in a fixed order, that can be read repeatedly."""

    def schema(self) -> pa.Schema:
        """Return the names and types of the columns."""

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows."""


class SpillFile:
    """Rows in a scratch file, in their original batches."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema

    @classmethod
    def write(cls, batches: Iterable[pa.Table], schema: pa.Schema, path: Path) -> SpillFile:
        """Write batches to a file, cast by `typed`."""
        with pa.ipc.new_file(str(path), schema) as file:
            for batch in batches:
                # As one record batch: the batches of the file must match those of the split codes.
                file.write_table(typed(batch, schema).combine_chunks())
        return cls(path, schema)

    def schema(self) -> pa.Schema:
        """See `Rows.schema`."""
        return self._schema

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows, or some of their columns."""
        names = self._schema.names if columns is None else list(columns)
        fields = sorted(self._schema.get_field_index(name) for name in names)
        with pa.OSFile(str(self.path)) as source:
            file = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=fields))
            for number in range(file.num_record_batches):
                yield pa.Table.from_batches([file.get_batch(number)]).select(names)

    def delete(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)


def read_batch(path: Path, number: int) -> pa.Table:
    """Return a record batch of an Arrow file."""
    with pa.OSFile(str(path)) as source:
        return pa.Table.from_batches([pa.ipc.open_file(source).get_batch(number)])


def read_file(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of an Arrow file, or some of their columns."""
    with pa.OSFile(str(path)) as source:
        names = pa.ipc.open_file(source).schema.names
        wanted = names if columns is None else list(columns)
        included = sorted(map(names.index, wanted))
        file = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=included))
        return file.read_all().select(wanted)


def typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast rows to the types of a schema.

    Raises:
        DataError: A value does not fit the type of its column in the first file.
    """
    try:
        return rows.cast(schema)
    except pa.ArrowInvalid as error:
        types = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise DataError(
            f"the files with interactions differ in their types: {error}",
            hint=f"convert all files to the types of the first one: {types}",
        ) from error


class NumberFile:
    """The columns of a split as integers in a scratch file, batch by batch.

    Times become order-preserving integers; users and impressions are numbered in order of appearance, -1 for no impression.

    Attributes:
        keys: Columns of the rows by "user", "timestamp", "impression" or "number" (ROW_NUMBER, or consecutive without it).
    """

    def __init__(self, keys: Mapping[str, str], path: Path) -> None:
        self.keys = keys
        self._path = path
        self._schema = pa.schema([(key, pa.int64()) for key in keys])

    def write(self, batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield batches, after the numbers of each are written."""
        users, impressions, done = Numbering(), Numbering(), 0
        with pa.ipc.new_file(str(self._path), self._schema) as file:
            for batch in batches:
                columns: dict[str, pa.ChunkedArray | pa.Array] = {}
                if "user" in self.keys:
                    columns["user"] = users.of(_without_nulls(batch, self.keys["user"]))
                if "timestamp" in self.keys:
                    columns["timestamp"] = _in_order(batch.column(self.keys["timestamp"]))
                if "impression" in self.keys:
                    shown = batch.column(self.keys["impression"])
                    is_null = pc.is_null(shown, nan_is_null=True).combine_chunks()
                    columns["impression"] = pc.if_else(is_null, -1, impressions.of(shown))
                if "number" in self.keys:
                    is_numbered = ROW_NUMBER in batch.column_names
                    consecutive = np.arange(done, done + batch.num_rows)
                    columns["number"] = batch.column(ROW_NUMBER) if is_numbered else pa.array(consecutive)
                    done += batch.num_rows
                numbers = pa.table({key: columns[key] for key in self.keys})
                file.write_table(numbers.cast(self._schema).combine_chunks())
                yield batch

    def read(self) -> Iterator[dict[str, npt.NDArray[np.int64]]]:
        """Yield the numbers of each batch."""
        for batch in SpillFile(self._path, self._schema).batches():
            yield {key: batch.column(key).to_numpy() for key in self.keys}


def _without_nulls(batch: pa.Table, name: str) -> pa.ChunkedArray:
    values = batch.column(name)
    if pc.any(pc.is_null(values, nan_is_null=True)).as_py():
        raise DataError(
            f"the column {name} has nulls, so the split cannot use it",
            hint=f"drop them: put {{op: Dropna, columns: [{name}]}} first in features.ops",
        )
    return values


def _in_order(times: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return order-preserving integers of times; arbitrary for missing times, refused by a later check."""
    if not pa.types.is_floating(times.type):
        return times.cast(pa.int64()).fill_null(0)
    bits = (times.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return pa.array(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits))


class Numbering:
    """Numbers the values of a column, null included, in order of first appearance."""

    def __init__(self) -> None:
        self._seen: pl.DataFrame | None = None

    def __len__(self) -> int:
        return 0 if self._seen is None else len(self._seen)

    @property
    def values(self) -> pa.Array:
        """The values, by number."""
        return pa.nulls(0) if self._seen is None else self._seen.get_column("value").to_arrow()

    def of(self, values: pa.ChunkedArray) -> pa.Array:
        """Return the number of each value, int64."""
        if pa.types.is_floating(values.type):
            values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 becomes 0.0
        encoded = values.combine_chunks().dictionary_encode(null_encoding="encode")
        distinct = pl.DataFrame({"value": pl.from_arrow(encoded.dictionary)})  # in order of first appearance
        if self._seen is None:
            self._seen = distinct.clear().with_columns(pl.lit(0, pl.Int64).alias("number"))
        joined = distinct.join(self._seen, on="value", how="left", nulls_equal=True, maintain_order="left")
        is_new = joined.get_column("number").is_null().to_numpy()
        numbers = joined.get_column("number").fill_null(0).to_numpy(writable=True)
        numbers[is_new] = len(self._seen) + np.arange(np.count_nonzero(is_new))
        new = distinct.with_columns(pl.Series("number", numbers)).filter(pl.Series(is_new))
        self._seen = pl.concat([self._seen, new])
        return pa.array(numbers[encoded.indices.to_numpy()])


@dataclass(frozen=True)
class PartitionedFile:
    """A scratch file with a batch of raw rows, sorted by partition.

    Attributes:
        path: An Arrow IPC file with one record batch per partition.
        starts: Start of each partition among the rows, and the number of rows; shape (P + 1,).
        last: Number of the last row in the raw input; 0 for rows without numbers.
    """

    path: Path
    starts: npt.NDArray[np.int64]
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

        `numbers`, those of the rows in the raw input, ascending, become the ROW_NUMBER; None for no ROW_NUMBER. The file appears
        whole: a worker that was given up may still write it.
        """
        last = 0 if numbers is None else int(numbers[-1])
        if numbers is not None:
            small = numbers.astype(np.int32 if last < 2**31 else np.int64)
            rows = rows.append_column(ROW_NUMBER, pa.array(small))
        order = np.argsort(partitions, kind="stable")
        starts = np.concatenate(([0], np.cumsum(np.bincount(partitions, minlength=num_partitions))))
        sorted_rows = rows.combine_chunks().take(pa.array(order)).to_batches()[0]
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        with pa.ipc.new_file(str(partial), sorted_rows.schema) as file:
            for start, end in itertools.pairwise(starts.tolist()):
                file.write_batch(sorted_rows.slice(start, end - start))
        partial.replace(path)
        return cls(path, starts, last)

    def tables(self, schema: pa.Schema, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the columns `names` of the schema, partition by partition."""
        yield from self._read(range(len(self.starts) - 1), schema, names)

    def table(self, partition: int, schema: pa.Schema, names: Sequence[str]) -> pa.Table:
        """Return the columns `names` of the schema of a partition."""
        return next(self._read([partition], schema, names))

    def _read(self, partitions: Iterable[int], schema: pa.Schema, names: Sequence[str]) -> Iterator[pa.Table]:
        fields = pa.schema([schema.field(name) for name in names])
        options = None
        if 2 * len(names) <= len(schema):  # from half of the columns on, reading all is faster
            included = sorted(schema.get_field_index(name) for name in names)
            options = pa.ipc.IpcReadOptions(included_fields=included)
        # Read, not memory-mapped: all mapped pages would count as memory of this process.
        with pa.OSFile(str(self.path)) as source:
            file = pa.ipc.open_file(source, options=options)
            for partition in partitions:
                yield pa.Table.from_batches([file.get_batch(partition)]).select(names).cast(fields)


@dataclass(frozen=True)
class Span:
    """Rows first to last - 1 of a partition of a file."""

    file: PartitionedFile
    partition: int
    first: int
    last: int


def read(spans: Sequence[Span], schema: pa.Schema, names: Sequence[str]) -> pa.Table:
    """Return the columns `names` of rows of several files, in contiguous memory."""
    tables = [pa.table({name: pa.array([], schema.field(name).type) for name in names})]
    for span in spans:
        rows = span.file.table(span.partition, schema, names)
        tables.append(rows.slice(span.first, span.last - span.first))
    return pa.concat_tables(tables).combine_chunks()
