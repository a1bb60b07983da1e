"""Raw tables as Arrow batches, in file order, in bounded memory, with every row that cannot be read named."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.bad_rows import BadRow, sift
from recsys_cli.etl.dialect import ARROW_TYPES, convert_options, parse_options, plain_separator, text_columns

CHUNK_BYTES = 48 << 20
"""Text parsed at a time by one thread. Smaller costs more per chunk, larger costs memory."""
CHUNK_ROWS = 2_000_000
"""Rows of a parquet file read at a time."""


@dataclass(frozen=True)
class Chunk:
    """Some whole lines of a file.

    Attributes:
        file: Where they are from.
        first_line: Number of the first of them in the file, from 1.
        text: The lines, in the table's own dialect with a separator of one character.
    """

    file: Path
    first_line: int
    text: bytes


@dataclass
class Reader:
    """Reads one raw table.

    Attributes:
        table: What to read.
        columns: Names to keep, in order; None for all.
        skip_bad: Leave bad rows out and collect them, instead of stopping at them.
        rejected: The bad rows that were left out so far.
        threads: Parsers at work at the same time.
    """

    table: RawTable
    columns: Sequence[str] | None = None
    skip_bad: bool = False
    threads: int = 2
    rejected: list[BadRow] = field(default_factory=list)

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have.

        Raises:
            DataError: A file is missing or has no columns.
        """
        return next(iter(self._read_some())).schema

    def batches(self) -> Iterator[pa.Table]:
        """Yield the table's rows in order.

        Raises:
            DataError: A row is bad and bad rows are not skipped; or a file cannot be read.
        """
        for path in self.table.files:
            if not path.is_file():
                raise DataError(f"{path} is not there", hint="recsys download --force fetches it again")
            if self.table.format == "parquet":
                yield from (self._finish(batch) for batch in _parquet_batches(path, self.columns))
            else:
                yield from self._csv_batches(path)

    def read(self) -> pa.Table:
        """Return the whole table: for tables that are joined, which are small."""
        return pa.concat_tables(list(self.batches()) or [self.schema().empty_table()]).combine_chunks()

    def estimated_rows(self) -> int:
        """Estimate the number of rows from sizes alone: the same files always give the same number."""
        if self.table.format == "parquet":
            return sum(pq.read_metadata(path).num_rows for path in self.table.files)
        size = sum(path.stat().st_size for path in self.table.files if path.is_file())
        with self.table.files[0].open("rb") as file:
            sample = file.read(1 << 20)
        return max(1, round(size * sample.count(b"\n") / max(1, len(sample))))

    def _read_some(self) -> Iterator[pa.Table]:
        path = self.table.files[0]
        if self.table.format == "parquet":
            yield self._finish(pq.ParquetFile(path).schema_arrow.empty_table())
            return
        with path.open("rb") as file:
            head = b"".join(file.readline() for _ in range(1000))
        yield from self._parse_all(Chunk(path, 1, self._plain(head)))

    def _csv_batches(self, path: Path) -> Iterator[pa.Table]:
        """Parse chunk after chunk with a few threads, and hand them out in order."""
        with ThreadPoolExecutor(self.threads, thread_name_prefix="parse") as pool:
            ahead: list[Future[list[pa.Table]]] = []
            try:
                for chunk in self._chunks(path):
                    ahead.append(pool.submit(lambda part: list(self._parse_all(part)), chunk))
                    if len(ahead) > self.threads:
                        yield from ahead.pop(0).result()
                while ahead:
                    yield from ahead.pop(0).result()
            finally:
                for future in ahead:
                    future.cancel()

    def _chunks(self, path: Path) -> Iterator[Chunk]:
        quote = self.table.quote.encode() if self.table.quote else None
        with path.open("rb") as file:
            header = self._plain(file.readline()) if self.table.header else b""
            line = 2 if header else 1
            while text := file.read(CHUNK_BYTES):
                text += file.readline()
                while quote and text.count(quote) % 2 and (more := file.readline()):
                    text += more  # the chunk would have ended inside a quoted field
                yield Chunk(path, line, header + self._plain(text))
                line += text.count(b"\n")

    def _plain(self, text: bytes) -> bytes:
        """Bring the text to UTF-8 and a separator of one character."""
        if self.table.encoding != "utf-8":
            text = text.decode(self.table.encoding).encode()
        if len(self.table.separator) > 1:
            text = text.replace(self.table.separator.encode(), plain_separator(self.table).encode())
        return text

    def _parse_all(self, chunk: Chunk) -> Iterator[pa.Table]:
        text = pa.py_buffer(chunk.text)
        try:
            parsed = csv.read_csv(
                pa.BufferReader(text),
                read_options=self._read_options(),
                parse_options=parse_options(self.table),
                convert_options=convert_options(self.table, self._wanted()),
            )
        except pa.ArrowInvalid as error:
            if not self.table.columns:
                raise DataError(f"{chunk.file}: {error}", hint="every line has to have the same columns") from error
            parsed = None
        if parsed is None or self._has_unwanted_nulls(parsed):
            parsed = self._sift(chunk)
        yield self._finish(parsed)

    def _sift(self, chunk: Chunk) -> pa.Table:
        good, bad = sift(io.BytesIO(chunk.text), self.table, first_line=chunk.first_line, file=chunk.file)
        if bad and not self.skip_bad:
            shown = "\n".join(f"  {row}" for row in bad[:10])
            more = f"\n  and {len(bad) - 10} more near there" if len(bad) > 10 else ""
            raise DataError(
                f"rows that cannot be read:\n{shown}{more}",
                hint="mend the file, or leave such rows out with etl.on_bad_rows=skip",
            )
        self.rejected += bad
        return good.select(self._wanted())

    def _wanted(self) -> list[str]:
        """Return the columns to take from the file: those asked for, and the flags that lists are made from."""
        names = [column.name for column in self.table.columns]
        if self.columns is None or not names:
            return names if self.columns is None else list(self.columns)
        flags = [flag for name in self.columns for flag in self.table.flags.get(name, ())]
        return [name for name in self.columns if name in names] + flags

    def _read_options(self) -> csv.ReadOptions:
        named = [column.name for column in self.table.columns] or None
        skip = 1 if self.table.header and named else 0
        return csv.ReadOptions(column_names=named, skip_rows=skip, use_threads=False, block_size=CHUNK_BYTES * 2)

    def _has_unwanted_nulls(self, parsed: pa.Table) -> bool:
        required = [c.name for c in self.table.columns if not c.nullable and c.name in parsed.column_names]
        return any(parsed.column(name).null_count for name in required)

    def _finish(self, batch: pa.Table) -> pa.Table:
        """Split list columns, gather flags, and bring the columns into the order asked for."""
        for column in text_columns(self.table):
            if column.name in batch.column_names:
                position = batch.column_names.index(column.name)
                batch = batch.set_column(position, column.name, _split(batch.column(column.name), column))
        for name, flags in self.table.flags.items():
            if set(flags) <= set(batch.column_names):
                lists = _from_flags(batch.select(list(flags)))
                batch = batch.drop_columns(list(flags)).append_column(name, lists)
        return batch.select(list(self.columns)) if self.columns is not None else batch


def _parquet_batches(path: Path, columns: Sequence[str] | None) -> Iterator[pa.Table]:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: not a parquet file: {error}") from error
    for batch in file.iter_batches(CHUNK_ROWS, columns=list(columns) if columns is not None else None):
        yield pa.Table.from_batches([batch])


def _split(texts: pa.ChunkedArray, column: RawColumn) -> pa.ChunkedArray:
    lists = pc.split_pattern(texts.cast(pa.string()), str(column.separator))
    nothing = pc.equal(texts, column.empty) if column.empty is not None else pc.equal(texts, "")
    empty = pa.scalar([], type=lists.type)
    lists = pc.if_else(pc.fill_null(nothing, False), empty, lists)
    return lists.cast(pa.list_(ARROW_TYPES[column.dtype]))


def _from_flags(flags: pa.Table) -> pa.Array:
    rows = zip(*(flags.column(name).to_pylist() for name in flags.column_names), strict=True)
    lists = [[name for name, flag in zip(flags.column_names, row, strict=True) if flag] for row in rows]
    return pa.array(lists, pa.list_(pa.string()))
