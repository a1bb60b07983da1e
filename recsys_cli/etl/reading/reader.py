"""Reader of raw tables as Arrow batches, in file order and bounded memory, and the raw tables of a preparation."""

from __future__ import annotations

import copy
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from recsys_cli.config import RunConfig
from recsys_cli.cpu import cores, read_ahead
from recsys_cli.data.raw_files import RawFile, compression, fill, opened, size_of
from recsys_cli.data.selection import constants
from recsys_cli.data.source import RawTable, open_given, open_source
from recsys_cli.errors import ConfigError, DataError, listed
from recsys_cli.etl.reading.dialect import BadRow, field_types
from recsys_cli.etl.reading.parts import FilePart, parts_of
from recsys_cli.etl.reading.rows import (
    id_schema,
    limits,
    missing_texts,
    recent,
    refuse_mixed_times,
    refuse_nested,
    reshaped,
    reshaped_schema,
    whole_ids,
)
from recsys_cli.etl.reading.text import Chunk, Parsed, chunks, empty_chunk, parse, parse_in_order, resolve, window
from recsys_cli.etl.reading.times import CLEAR, DETECT, described
from recsys_cli.etl.reading.typed_files import (
    NpyTable,
    estimated_parquet_rows,
    open_parquet,
    parquet_rows,
    stored_schema,
    table_schema,
    with_time_formats,
)
from recsys_cli.features.schema import TICKS
from recsys_cli.features.split import SPLITS, TRAIN, FilesSplit
from recsys_cli.ops.fitted_plan import TIME_FORMAT
from recsys_cli.ops.program import INTERACTIONS, Program

_SAMPLE_BYTES, _PACKED_SAMPLE_BYTES = 1 << 20, 4 << 20
_MIN_CHUNK, _MAX_CHUNK = 1 << 20, 32 << 20
_SHARE = 6
_WINDOW = 4 << 20


def chunk_bytes(memory: int, threads: int) -> int:
    """Return the bytes of text per chunk for a memory budget in MiB.

    A sixth of the budget is for text: one chunk per thread, one waiting and one being read. Parsed text takes the same
    memory again, and three times as much for many short numbers.
    """
    return min(_MAX_CHUNK, max(_MIN_CHUNK, (memory << 20) // _SHARE // (threads + 2)))


@dataclass
class Reader:
    """Reads a raw table; memory holds about `threads` + 2 chunks, as text or parsed, and one batch.

    Attributes:
        columns: Names to keep, in order; None for all.
        skip_bad: Skip and collect bad rows instead of raising an error.
        every_row: All rows are required and types are fixed; see `parse`.
        chunk_bytes: Bytes of text per chunk, and approximate size of the batches.
        times: Formats of time columns without a format in the dataset; see `RawColumn`.
        limit: Number of rows to read from the start; None for all.
        ids: Columns of ids; see `whole_ids`.
        first: Number of the first row, for `order`.
        rejected: The skipped rows so far.
        padded: Receives the columns of whole numbers with leading zeros; None for an error at ids with them.
        part: The part of the files to read; None for all.
    """

    table: RawTable
    columns: Sequence[str] | None = None
    skip_bad: bool = False
    every_row: bool = False
    threads: int = 2
    chunk_bytes: int = _MAX_CHUNK
    times: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    ids: Collection[str] = ()
    first: int = 0
    rejected: list[BadRow] = field(default_factory=list)
    padded: set[str] | None = None
    part: FilePart | None = None

    def parts(self, num_bytes: int) -> list[FilePart] | None:
        """Return parts of about `num_bytes` for readers of their own, see `of`; None where a row depends on earlier ones."""
        if self.limit is not None or self.table.order is not None or self.table.line is not None or self._arrays:
            return None
        self.schema()  # types, formats and limits by the first rows go along to the readers
        _ = self._whole, self._constants, self._limits if self.table.since else None
        return parts_of(self.table, num_bytes)

    def of(self, part: FilePart) -> Reader:
        """Return the reader of a part, with the types of the whole table."""
        reader = copy.copy(self)
        reader.part, reader.rejected, reader.threads = part, [], 1
        return reader

    def schema(self) -> pa.Schema:
        """Return the schema of the batches, from the first file with rows, with the type of the elements for `explode`.

        Raises:
            DataError: The file is missing, or lacks a column of `columns`.
        """
        return id_schema(reshaped_schema(self._stored_schema(), self.table, self.columns), self.ids)

    def is_empty(self) -> bool:
        """Whether all files of the table have no rows; raises like `schema`."""
        if self.table.format != "csv":
            return not estimated_parquet_rows(self.table.files, self.table.format)
        return not self._resolved[1]

    def batches(self) -> Generator[pa.Table]:
        """Yield the rows in order; small files and row groups are combined.

        Raises:
            DataError: A row is bad and `skip_bad` is false, a file is unreadable, or an id is too large for its type.
        """
        stored = self._stored_batches()
        left = sys.maxsize if self.limit is None else self.limit
        with closing(stored):
            for rows in reshaped(stored, self.table, self.columns, first=self.first):
                rows = whole_ids(missing_texts(rows, self.ids, self.table), self.ids, self.table)  # noqa: PLW2901
                yield rows if rows.num_rows <= left else rows.slice(0, left)
                left -= rows.num_rows
                if left <= 0:
                    break

    def _stored_batches(self) -> Generator[pa.Table]:
        self.rejected.clear()  # a second pass collects the same rows again
        self._stored_schema()
        if self.table.format != "csv":
            refuse_nested(self._selected(self._full_schema), where=f"table {self.table.name!r}")
            tables = read_ahead(self._parquet())
        else:
            table, part = self._resolved[0], self.part
            table, within = (
                (table, None) if part is None else (replace(table, files=(part.file,)), (part.start, part.stop))
            )
            cut = chunks(table, chunk_bytes=self.chunk_bytes, check=self._require, within=within)
            tables = self._kept(parse_in_order(cut, self._parse, threads=self.threads))
        with closing(tables):
            rows = tables
            if self.table.since:
                rows = recent(tables, self._limits, self.table, required=self.part is None)
            yield from _combined((part.select(self._selection) for part in rows), self.chunk_bytes // 2)

    def read(self) -> pa.Table:
        """Return the whole table, for small joined tables."""
        return pa.concat_tables([self.schema().empty_table(), *self.batches()]).combine_chunks()

    def count(self) -> int:
        """Return the number of rows, by a read of all; with `order` in the table."""
        columns = (str(self.table.order),)
        return sum(rows.num_rows for rows in replace(self, columns=columns, ids=(), rejected=[]).batches())

    def head(self, limit: int) -> tuple[pa.Table, bool]:
        """Return the first rows, and whether these are all."""
        parts, num_rows = [self.schema().empty_table()], 0
        with closing(self.batches()) as batches:
            while num_rows <= limit and (batch := next(batches, None)) is not None:
                parts.append(batch)
                num_rows += batch.num_rows
        rows = pa.concat_tables(parts)
        return rows.slice(0, limit), rows.num_rows <= limit

    def later(self, limit: int, most: int) -> tuple[pa.Table, bool]:
        """Return about `limit` rows each after two thirds of the bytes and at the end, and whether the end is among them.

        A single file that is packed, remote or of JSON lines is read from its start, up to `most` rows.
        """
        windows = [self._window(start, limit) for start in (2 / 3, 1.0)]
        parts, is_end = [one for one in windows if one is not None], True
        if len(parts) < len(windows):
            parts, seen = [], 0
            with closing(self.batches()) as batches:
                while seen < most and (batch := next(batches, None)) is not None:
                    seen += batch.num_rows
                    parts.append(batch.slice(max(0, batch.num_rows - limit // 20)))
                is_end = seen < most
        return pa.concat_tables([self.schema().empty_table(), *parts]), is_end

    def _window(self, start: float, limit: int) -> pa.Table | None:
        """Return rows from a share of the bytes on, with 1 the last ones; None where only the first file's start is cheap."""
        sizes = [size_of(file) or 0 for file in self.table.files]
        wanted = start * sum(sizes)
        at = next((at for at in range(len(sizes)) if sum(sizes[: at + 1]) >= wanted), 0)
        file, share = self.table.files[at], (wanted - sum(sizes[:at])) / max(1, sizes[at])
        is_plain = isinstance(file, Path) and compression(file.name) is None
        if self.table.format == "parquet" and isinstance(file, Path):
            rows = self._groups(file, share)
        elif self.table.format == "csv" and is_plain:
            size = min(_WINDOW, sizes[at] // 4)
            chunk = window(self._resolved[0], file, min(share, 1 - size / max(1, sizes[at])), size)
            rows = self._parse(chunk).rows
        elif at == 0 or self.table.format == "npy":
            return None
        else:
            columns = self._resolved[0].columns if self.table.format == "csv" else self.table.columns
            return replace(self, table=replace(self.table, files=(file,), columns=columns), rejected=[]).head(limit)[0]
        rows = rows.select(self._selection)
        rows = rows.slice(max(0, rows.num_rows - limit)) if start == 1 else rows.slice(0, limit)
        return pa.concat_tables(reshaped([rows], self.table, self.columns))

    def _groups(self, file: Path, share: float) -> pa.Table:
        """Return the row group of a Parquet file after a share of its groups."""
        with open_parquet(file) as opened:
            number = opened.metadata.num_row_groups
        schema = pa.schema([self._file_schema.field(name) for name in self._in_files])
        rows = self._parquet_rows(file, groups=[min(number - 1, int(share * number))])
        return self._with_constants(pa.concat_tables([schema.empty_table(), *rows]), file)

    def estimated_rows(self) -> int:
        """Estimate the number of rows from file sizes and the start of a file.

        At most `limit`. Deterministic, but different for compressed, text and Parquet versions of the same data.
        """
        most = sys.maxsize if self.limit is None else self.limit
        if self._arrays is not None:
            return min(most, self._arrays.num_rows)
        if self.table.format != "csv":
            return min(most, estimated_parquet_rows(self.table.files, self.table.format))
        rows = 0.0
        for packed in dict.fromkeys(compression(file.name) for file in self.table.files):
            files = [file for file in self.table.files if compression(file.name) == packed]
            lines, stored = _density(max(files, key=lambda file: size_of(file) or 0))
            rows += sum(size_of(file) or 0 for file in files) * lines / max(1, stored)
        return min(most, max(1, round(rows)))

    @property
    def _selection(self) -> Sequence[str]:
        if self.columns is None:
            names: Sequence[str] = self._full_schema.names
            return names
        stored = {new: old for old, new in self.table.rename.items()}
        needed = (
            *(stored.get(name, name) for name in self.columns),
            *((self.table.explode,) if self.table.explode else ()),
        )
        return tuple(
            name for name in dict.fromkeys(needed) if name not in {self.table.order, self.table.clicks, self.table.line}
        )

    def _stored_schema(self) -> pa.Schema:
        return self._full_schema if self.columns is None else self._selected(self._full_schema)

    @cached_property
    def _in_files(self) -> list[str]:
        """The columns to read from the files, those of `since` included; at least one, for the number of rows."""
        stored = [name for name in self._full_schema.names if name not in self.table.partitions]
        needed = dict.fromkeys((*self._selection, *self.table.since))
        in_files = set(stored)
        return [name for name in needed if name in in_files] or stored[:1]

    @cached_property
    def _limits(self) -> dict[str, pa.Scalar]:
        return limits(self)

    @cached_property
    def _constants(self) -> Mapping[RawFile, Mapping[str, pa.Scalar]]:
        return constants(self.table)

    @cached_property
    def _resolved(self) -> tuple[RawTable, bool]:
        table, has_rows = resolve(self.table, self.times)
        columns = (replace(c, dtype="string", time=None) if c.name in table.partitions else c for c in table.columns)
        return replace(table, columns=tuple(columns)), has_rows

    @cached_property
    def _stored(self) -> RawTable:
        return self.table if self._arrays is not None else with_time_formats(self.table, self.times)

    @cached_property
    def _arrays(self) -> NpyTable | None:
        return NpyTable(self.table) if self.table.format == "npy" else None

    @property
    def stored_schema(self) -> pa.Schema:
        """Columns of the first file in order, in stored types; those of text by the first rows."""
        if self.table.format == "csv":
            return pa.schema(list(field_types(self._resolved[0]).items()))
        return stored_schema(self.table.files[0], self.table.format)

    @property
    def known_times(self) -> dict[str, str]:
        """Formats of the time columns, declared or detected in the first rows."""
        table = self._stored if self.table.format != "csv" else self._resolved[0]
        return {column.name: column.time for column in table.columns if column.time is not None}

    @cached_property
    def _file_schema(self) -> pa.Schema:
        if self._arrays is not None:
            return self._arrays.schema()
        if self.table.format != "csv":
            return table_schema(self._stored)
        return parse(empty_chunk(self._resolved[0]), None).rows.schema

    @cached_property
    def _full_schema(self) -> pa.Schema:
        stored = self._file_schema
        partitions = self.table.partitions
        if not partitions:
            return stored
        fields = [field for field in stored if field.name not in partitions]
        return pa.schema([*fields, *(pa.field(name, values.type) for name, values in partitions.items())])

    def _selected(self, schema: pa.Schema) -> pa.Schema:
        self._require(self.table.files[0], schema.names)
        return pa.schema([schema.field(name) for name in self._selection])

    def _require(self, file: RawFile, names: Sequence[str]) -> None:
        needed, known = dict.fromkeys((*self._selection, *self.table.since)), {*names, *self.table.partitions}
        missing = [column for column in needed if column not in known]
        if missing:
            raise DataError(
                f"{file}: no column {listed(missing)}; it has {listed(names)}",
                hint="all files of a table need the columns that the config reads",
            )

    def _parse(self, chunk: Chunk) -> Parsed:
        parsed = parse(
            chunk, self._in_files, skip_bad=self.skip_bad, every_row=self.every_row, times=self.times, whole=self._whole
        )
        if self.padded is not None:
            self.padded.update(parsed.padded)
        elif parsed.padded:
            ((name, text), *_) = parsed.padded.items()
            raise DataError(
                f"{chunk.file}: column {name} has the id {text!r}, and the first rows have numbers, so it would be {int(text)}",
                hint=f"set types: {{{name}: string}} next to the table's files, or int64 if leading zeros mean nothing",
            )
        return replace(parsed, rows=self._with_constants(parsed.rows, chunk.file))

    @cached_property
    def _whole(self) -> list[str]:
        """Columns of text files without a declared type that may be ids."""
        stored = {new: old for old, new in self.table.rename.items()}
        declared = {column.name for column in self.table.columns if column.dtype is not None}
        names = self._in_files if self.padded is not None else (stored.get(name, name) for name in self.ids)
        return [name for name in names if name not in declared]

    def _parquet(self) -> Iterator[pa.Table]:
        if self._arrays is not None:
            yield from self._arrays.batches(self._in_files, chunk_bytes=self.chunk_bytes)
            return
        part = self.part
        for file in self.table.files if part is None else [part.file]:
            groups = None if part is None or part.stop is None else range(part.start, part.stop)
            for rows in self._parquet_rows(file, groups=groups, first=0 if part is None else part.first):
                yield self._with_constants(rows, file)

    def _parquet_rows(self, file: RawFile, **part: Any) -> Iterator[pa.Table]:
        """Yield the rows of a file, or of some of its row groups; see `parquet_rows`."""
        schema = pa.schema([self._file_schema.field(name) for name in self._in_files])
        how: dict[str, Any] = {"typed_by": self.table.files[0], "chunk_bytes": self.chunk_bytes, "check": self._require}
        return parquet_rows(replace(self._stored, files=(file,)), schema, **how, **part)

    def _with_constants(self, rows: pa.Table, file: RawFile) -> pa.Table:
        for name, value in self._constants[file].items():
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        return rows

    def _kept(self, parsed: Iterable[Parsed]) -> Generator[pa.Table]:
        for part in parsed:
            self.rejected += part.bad
            yield part.rows


def _combined(tables: Iterable[pa.Table], num_bytes: int) -> Iterator[pa.Table]:
    pending: list[pa.Table] = []
    size = 0
    for table in tables:
        if table.num_rows:
            pending.append(table)
            size += table.nbytes
        if pending and size >= num_bytes:
            yield pa.concat_tables(pending)
            pending, size = [], 0
    if pending:
        yield pa.concat_tables(pending)


def _density(file: RawFile) -> tuple[int, int]:
    """Return the lines in a sample from the start of a file, and its stored (compressed) bytes."""
    buffer = bytearray(_SAMPLE_BYTES if compression(file.name) is None else _PACKED_SAMPLE_BYTES)
    with opened(file) as (stream, stored):
        count = fill(stream, memoryview(buffer))
        return buffer.count(b"\n", 0, count), stored.tell()


_KEEP = " (to keep the raw numbers, set times: {{{name}: s}} next to the files of the table)"


@dataclass(frozen=True)
class Inputs:
    """The raw tables of a config.

    Attributes:
        interactions: The reader of the interactions under "all", or one per split of a files split.
        schema: Names and types of the columns of the plan in the interactions, with the formats of times as metadata.
    """

    program: Program
    interactions: Mapping[str, Reader]
    joined: Mapping[str, Reader]
    schema: pa.Schema

    @classmethod
    def of(cls, config: RunConfig, raw: Path, *, limit: int | None = None) -> Inputs:
        """Open the raw tables, of the interactions the first `limit`, and compile the plan, with types by a sample.

        Raises:
            ConfigError: The plan does not fit the tables.
            DataError: A table is not readable, or has no rows.
        """
        source = open_source(config.dataset.name, config.dataset.options)
        tables = {table.name: table for table in source.tables(raw)}
        interactions = _interactions(config, tables, raw)
        first, *others = interactions.values()
        for reader in others:
            reader.times = {**reader.times, **first.known_times}
        readers = {name: reader_of(config, table) for name, table in tables.items()}
        schema = first.schema()
        if first.is_empty():
            more = f" and {len(first.table.files) - 1} more files have" if len(first.table.files) > 1 else " has"
            raise DataError(
                f"{first.table.files[0]}{more} columns ({listed(schema.names)}) and no rows",
                hint="set dataset.interactions to a file with interactions, or write this one again",
            )
        program = config.features.compile(
            {name: reader.schema() for name, reader in readers.items()} | {INTERACTIONS: schema}
        )
        for reader in interactions.values():
            reader.columns, reader.limit = program.reads, limit
        for earlier, later in pairwise(interactions.values()):  # the history of a user goes on in the next file
            if later.table.order is not None:
                later.first = earlier.first + earlier.count()
        for reader in others:
            for own in reader.schema():
                target, where = schema.field(own.name), str(reader.table.files[0])
                refuse_mixed_times(own.type, target, where=where, typed_by=str(first.table.files[0]))
        joined = {op.table: readers[op.table] for _, op in program.joins}
        for name, reader in joined.items():
            of_table = [op for _, op in program.joins if op.table == name]
            reader.columns = tuple(dict.fromkeys(column for op in of_table for column in (op.on, *op.columns)))
            reader.ids = tuple(op.on for op in of_table)
        fields = [_noted(schema.field(name), first.known_times.get(name, "s")) for name in program.reads]
        return cls(program, interactions, joined, pa.schema(fields))

    @property
    def remarks(self) -> list[str]:
        """Messages about time columns with a conversion."""
        times = next(iter(self.interactions.values())).known_times
        return [
            f"{name} is read as {described(how)}{_KEEP.format(name=name) if how in TICKS else ''}"
            for name, how in times.items()
            if how != "s"
        ]

    @property
    def rejected(self) -> list[BadRow]:
        """The skipped bad rows so far."""
        return [row for reader in (*self.interactions.values(), *self.joined.values()) for row in reader.rejected]


def _noted(field: pa.Field, how: str) -> pa.Field:
    return field if how in CLEAR else field.with_metadata({**(field.metadata or {}), TIME_FORMAT: how.encode()})


def _interactions(config: RunConfig, tables: Mapping[str, RawTable], raw: Path) -> dict[str, Reader]:
    if not isinstance(config.split, FilesSplit):
        return {"all": interactions_reader(config, tables[INTERACTIONS])}
    dataset = config.dataset
    if not config.split.paths():
        own = {SPLITS[TRAIN]: tables[INTERACTIONS]} | {name: tables[name] for name in SPLITS[1:] if name in tables}
        if len(own) == 1:
            raise ConfigError(
                f"the dataset {dataset.name} has no splits of its own",
                hint="set split.train, split.valid and split.test to files",
            )
        return {split: interactions_reader(config, table) for split, table in own.items()}
    given = {split: open_given(dataset.name, dataset.options, path) for split, path in config.split.paths().items()}
    return {split: interactions_reader(config, source.tables(raw)[0]) for split, source in given.items()}


def reader_of(config: RunConfig, table: RawTable) -> Reader:
    """Return the reader of a table by the memory of a config and its rule of bad rows."""
    threads = cores()
    size = chunk_bytes(config.etl.memory_mib, threads)
    return Reader(table, skip_bad=config.etl.on_bad_rows == "skip", threads=threads, chunk_bytes=size)


def interactions_reader(config: RunConfig, table: RawTable) -> Reader:
    """Return the reader of a table of interactions, with their times and ids."""
    times = dict.fromkeys(config.features.raw_times, DETECT)
    return replace(reader_of(config, table), times=times, ids=config.features.raw_ids)
