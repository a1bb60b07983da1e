"""Raw tables as Arrow batches, in file order, in bounded memory, with every row that cannot be read named."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from recsys_cli.data.remote import RawFile
from recsys_cli.data.source import RawTable
from recsys_cli.data.streams import compression, fill, opened, size_of
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.bad_rows import BadRow
from recsys_cli.etl.reading.columns import resolve
from recsys_cli.etl.reading.csv_chunks import Chunk, chunks, nothing, parse_in_order, read_ahead
from recsys_cli.etl.reading.csv_parse import Parsed, parse
from recsys_cli.etl.reading.parquet import described_schema, described_times, estimated_parquet_rows, parquet_rows
from recsys_cli.etl.reading.plain_types import refuse_nested

_SAMPLE_BYTES, _PACKED_SAMPLE_BYTES = 1 << 20, 4 << 20
_MIN_CHUNK, _MAX_CHUNK = 1 << 20, 32 << 20
_SHARE = 6


def chunk_bytes(memory: int, threads: int) -> int:
    """Return how much text each of some threads may parse at a time within a budget.

    A sixth of the budget is for text: a chunk for each thread, one that waits and one that is being read. Parsed, text
    takes as much again, and three times as much where it is many short numbers.

    Args:
        memory: The budget, `etl.memory_mib`, in MiB.
        threads: Parsers at work at the same time.
    """
    return min(_MAX_CHUNK, max(_MIN_CHUNK, (memory << 20) // _SHARE // (threads + 2)))


@dataclass
class Reader:
    """Reads one raw table, holding at most about `threads` + 2 chunks of it as text or parsed, and one as a batch.

    Attributes:
        table: What to read.
        columns: Names to keep, in order; None for all.
        skip_bad: Leave bad rows out and collect them, instead of stopping at them.
        every_row: No row may be left out and types are given: see `parse`.
        threads: Parsers at work at the same time.
        chunk_bytes: Size of the text parsed at a time, and about that of the batches handed out.
        times: Which columns are times, with how they are written (see `RawColumn`), where the dataset does not say it.
        rejected: The bad rows that were left out so far.
    """

    table: RawTable
    columns: Sequence[str] | None = None
    skip_bad: bool = False
    every_row: bool = False
    threads: int = 2
    chunk_bytes: int = _MAX_CHUNK
    times: Mapping[str, str] = field(default_factory=dict)
    rejected: list[BadRow] = field(default_factory=list)

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have: those of the first file that has rows.

        Raises:
            DataError: The file is missing or has no columns, or not those that are asked for.
        """
        return self._whole if self.columns is None else self._selected(self._whole)

    def is_empty(self) -> bool:
        """Return whether no file of the table has a row.

        Raises:
            DataError: See `schema`.
        """
        if self.table.format == "parquet":
            return not estimated_parquet_rows(self.table.files)
        return not self._resolved[1]

    def batches(self) -> Iterator[pa.Table]:
        """Yield the table's rows in order; small files and row groups together, so that there are few batches.

        Raises:
            DataError: A row is bad and bad rows are not skipped; or a file cannot be read.
        """
        self.rejected.clear()  # a second pass finds the same bad rows again
        schema = self.schema()
        if self.table.format == "parquet":
            refuse_nested(schema, where=f"table {self.table.name!r}")
            stored = parquet_rows(self._stored, schema, chunk_bytes=self.chunk_bytes, check=self._require)
            tables = read_ahead(stored)
        else:
            cut = chunks(self._resolved[0], chunk_bytes=self.chunk_bytes, check=self._require)
            tables = self._kept(parse_in_order(cut, self._parse, threads=self.threads))
        with closing(tables):
            yield from _together(tables, self.chunk_bytes // 2)

    def read(self) -> pa.Table:
        """Return the whole table: for tables that are joined, which are small."""
        return pa.concat_tables([self.schema().empty_table(), *self.batches()]).combine_chunks()

    def estimated_rows(self) -> int:
        """Estimate the number of rows from sizes and a file's beginning: the same files always give the same number.

        It depends on how they are stored: text that is packed, or parquet, may give another number than the same as text.
        """
        if self.table.format == "parquet":
            return estimated_parquet_rows(self.table.files)
        rows = 0.0
        for packed in dict.fromkeys(compression(file.name) for file in self.table.files):
            files = [file for file in self.table.files if compression(file.name) == packed]
            lines, stored = _density(max(files, key=lambda file: size_of(file) or 0))
            rows += sum(size_of(file) or 0 for file in files) * lines / max(1, stored)
        return max(1, round(rows))

    @property
    def _wanted(self) -> Sequence[str]:
        names: Sequence[str] = self._whole.names if self.columns is None else self.columns
        return names

    @cached_property
    def _resolved(self) -> tuple[RawTable, bool]:
        return resolve(self.table, self.times)

    @cached_property
    def _stored(self) -> RawTable:
        return described_times(self.table, self.times)

    @property
    def known_times(self) -> dict[str, str]:
        """How the columns of times are written, as far as the first rows tell it: what other files of theirs are read by."""
        table = self._stored if self.table.format == "parquet" else self._resolved[0]
        return {column.name: column.time for column in table.columns if column.time is not None}

    @cached_property
    def _whole(self) -> pa.Schema:
        if self.table.format == "parquet":
            return described_schema(self._stored)
        return parse(nothing(self._resolved[0]), None).rows.schema

    def _selected(self, schema: pa.Schema) -> pa.Schema:
        self._require(self.table.files[0], schema.names)
        return pa.schema([schema.field(name) for name in self.columns or ()])

    def _require(self, file: RawFile, names: Sequence[str]) -> None:
        missing = [column for column in self._wanted if column not in names]
        if missing:
            raise DataError(
                f"{file}: no column {', '.join(missing)}; it has {', '.join(names)}",
                hint="all files of a table need the columns that the config reads",
            )

    def _parse(self, chunk: Chunk) -> Parsed:
        return parse(chunk, self._wanted, skip_bad=self.skip_bad, every_row=self.every_row, times=self.times)

    def _kept(self, parsed: Iterable[Parsed]) -> Generator[pa.Table]:
        for part in parsed:
            self.rejected += part.bad
            yield part.rows


def _together(tables: Iterable[pa.Table], num_bytes: int) -> Iterator[pa.Table]:
    """Join small tables until they have so many bytes."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        if table.num_rows:
            held.append(table)
            size += table.nbytes
        if held and size >= num_bytes:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def _density(file: RawFile) -> tuple[int, int]:
    """Return the lines of a file's beginning, and how many bytes of the file as it is stored those are."""
    buffer = bytearray(_SAMPLE_BYTES if compression(file.name) is None else _PACKED_SAMPLE_BYTES)
    with opened(file) as (stream, stored):
        count = fill(stream, memoryview(buffer))
        return buffer.count(b"\n", 0, count), stored.tell()
