"""Raw tables as Arrow batches, in file order, in bounded memory, with every row that cannot be read named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.errors import DataError
from recsys_cli.etl.bad_rows import BadRow, sift
from recsys_cli.etl.columns import resolve
from recsys_cli.etl.csv_chunks import Chunk, parse_in_order
from recsys_cli.etl.dialect import ARROW_TYPES, convert_options, parse_options

CHUNK_ROWS = 2_000_000
"""Rows of a parquet file read at a time."""
_SHOWN = 10


@dataclass
class Reader:
    """Reads one raw table.

    Attributes:
        table: What to read.
        columns: Names to keep, in order; None for all.
        skip_bad: Leave bad rows out and collect them, instead of stopping at them.
        threads: Parsers at work at the same time.
        rejected: The bad rows that were left out so far.
    """

    table: RawTable
    columns: Sequence[str] | None = None
    skip_bad: bool = False
    threads: int = 2
    rejected: list[BadRow] = field(default_factory=list)

    def schema(self) -> pa.Schema:
        """Return the names and types that batches have.

        Raises:
            DataError: The first file is missing or has no columns.
        """
        path = _existing(self.table.files[0])
        if self.table.format == "parquet":
            empty = _parquet(path).schema_arrow.empty_table()
            return empty.select(list(self.columns)).schema if self.columns is not None else empty.schema
        table = resolve(self.table, path)
        return self._parse(Chunk(path, 0, b""), table).schema

    def batches(self) -> Iterator[pa.Table]:
        """Yield the table's rows in order.

        Raises:
            DataError: A row is bad and bad rows are not skipped; or a file cannot be read.
        """
        self.rejected.clear()  # a second pass finds the same bad rows again
        for path in self.table.files:
            if self.table.format == "parquet":
                file = _parquet(_existing(path))
                self._require(path, file.schema_arrow.names)
                columns = list(self.columns) if self.columns is not None else None
                for batch in file.iter_batches(CHUNK_ROWS, columns=columns):
                    yield pa.Table.from_batches([batch]).select(batch.schema.names if columns is None else columns)
            else:
                table = resolve(self.table, _existing(path))
                self._require(path, [column.name for column in table.columns] + list(table.flags))
                yield from parse_in_order(path, table, partial(self._parse, table=table), threads=self.threads)

    def read(self) -> pa.Table:
        """Return the whole table: for tables that are joined, which are small."""
        return pa.concat_tables(list(self.batches()) or [self.schema().empty_table()]).combine_chunks()

    def estimated_rows(self) -> int:
        """Estimate the number of rows from sizes alone: the same files always give the same number."""
        if self.table.format == "parquet":
            return sum(_parquet(_existing(path)).metadata.num_rows for path in self.table.files)
        size = sum(_existing(path).stat().st_size for path in self.table.files)
        with self.table.files[0].open("rb") as file:
            sample = file.read(1 << 20)
        return max(1, round(size * sample.count(b"\n") / max(1, len(sample))))

    def _require(self, path: Path, names: Sequence[str]) -> None:
        missing = [column for column in self.columns or () if column not in names]
        if missing:
            raise DataError(
                f"{path}: no column {', '.join(missing)}; it has {', '.join(names)}",
                hint="all files with interactions need the columns that the config reads",
            )

    def _parse(self, chunk: Chunk, table: RawTable) -> pa.Table:
        names = [column.name for column in table.columns]
        wanted = names if self.columns is None else self._needed(table)
        options = convert_options(table, wanted)
        if not chunk.text:
            types = options.column_types
            return self._finish(pa.table({name: pa.array([], types[name]) for name in wanted}), table)
        try:
            parsed = csv.read_csv(
                pa.BufferReader(chunk.text),
                read_options=csv.ReadOptions(column_names=names, use_threads=False),
                parse_options=parse_options(table),
                convert_options=options,
            )
        except pa.ArrowInvalid:
            parsed = self._sift(chunk, table).select(wanted)
        required = [c.name for c in table.columns if not c.nullable and c.name in wanted]
        if any(parsed.column(name).null_count for name in required):
            parsed = self._sift(chunk, table).select(wanted)
        return self._finish(parsed, table)

    def _needed(self, table: RawTable) -> list[str]:
        """Return the fields to take from the file: the columns asked for, and the flags that lists are made from."""
        names = {column.name for column in table.columns}
        asked = list(self.columns or ())
        flags = [flag for name in asked for flag in table.flags.get(name, ())]
        return [name for name in asked if name in names] + flags

    def _sift(self, chunk: Chunk, table: RawTable) -> pa.Table:
        good, bad = sift(chunk.text, table, first_line=chunk.first_line, file=chunk.file)
        if bad and not self.skip_bad:
            shown = "\n".join(f"  {row}" for row in bad[:_SHOWN])
            more = f"\n  and {len(bad) - _SHOWN} more near there" if len(bad) > _SHOWN else ""
            raise DataError(
                f"rows that cannot be read:\n{shown}{more}",
                hint="mend the file, or leave such rows out with etl.on_bad_rows=skip",
            )
        self.rejected += bad
        return good

    def _finish(self, batch: pa.Table, table: RawTable) -> pa.Table:
        """Split list columns, gather flags, and bring the columns into the order asked for."""
        for column in table.columns:
            if column.separator is not None and column.name in batch.column_names:
                position = batch.column_names.index(column.name)
                batch = batch.set_column(position, column.name, _split(batch.column(column.name), column))
        for name, flags in table.flags.items():
            if set(flags) <= set(batch.column_names):
                lists = _from_flags(batch.select(list(flags)))
                batch = batch.drop_columns(list(flags)).append_column(name, lists)
        return batch.select(list(self.columns)) if self.columns is not None else batch


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"{path} is not there", hint="recsys download --force fetches a dataset again")
    return path


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: not a parquet file: {error}") from error


def _split(texts: pa.ChunkedArray, column: RawColumn) -> pa.ChunkedArray:
    lists = pc.split_pattern(texts.cast(pa.string()), str(column.separator))
    nothing = pc.fill_null(pc.equal(texts, column.empty or ""), False)
    lists = pc.if_else(nothing, pa.scalar([], type=lists.type), lists)
    return lists.cast(pa.list_(ARROW_TYPES[column.dtype]))


def _from_flags(flags: pa.Table) -> pa.Array:
    rows = zip(*(flags.column(name).to_pylist() for name in flags.column_names), strict=True)
    lists = [[name for name, flag in zip(flags.column_names, row, strict=True) if flag] for row in rows]
    return pa.array(lists, pa.list_(pa.string()))
