"""Text files: column types by the first rows, chunks of whole rows, and their rows in order; bad rows by file and line."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Lock
from types import MappingProxyType
from typing import TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.cpu import Threads, read_ahead
from recsys_cli.data.raw_files import RawFile, Stream, compression, fill, head, opened, size_of
from recsys_cli.data.source import RawColumn, RawTable, RawType
from recsys_cli.errors import DataError, listed
from recsys_cli.etl.reading.dialect import (
    ARROW_TYPES,
    BOM,
    NO_UTF_8,
    BadRow,
    count_lines,
    end_of_first_row,
    end_of_rows,
    field_types,
    open_quote,
    plain_separator,
    printable,
    read_text,
    shown_separator,
    sift,
    to_plain,
    with_separators,
)
from recsys_cli.etl.reading.rows import plain_type
from recsys_cli.etl.reading.times import to_times, typed_column

NOTHING: Mapping[str, str] = MappingProxyType({})
_SAMPLE_BYTES, _CHECKED = 4 << 20, 64 << 10
_HEADER_SHOWN = 200
# Digits of an identifier rather than a number: leading zeros, or more digits than float64 has.
_IDENTIFIER = {"int64": r"^[+-]?0\d", "float64": r"^[+-]?\d{16,}$"}


def resolve(table: RawTable, times: Mapping[str, str] = NOTHING) -> tuple[RawTable, bool]:
    """Return the table with the typed columns of its first file with rows, and whether such a file exists.

    Undeclared types and time formats (`times`) are inferred from the first 4 MiB of text, for all files.

    Raises:
        DataError: A file is unreadable or empty, a header lacks a declared column or has a duplicate, or a time column
            has other values.
    """
    first = None
    for file in table.files:
        text = head(file, _SAMPLE_BYTES)
        named, header = _named(table, text, file)
        rows = text[header:]
        if len(text) == _SAMPLE_BYTES or open_quote(rows, named) is not None:
            rows = rows[: end_of_rows(rows, named)]
        typed = (replace(c, time=c.time or times.get(c.name)) for c in _typed(named, rows))
        resolved = _with_time_formats(replace(table, columns=tuple(typed)), rows, file)
        first = first or resolved
        if text[header:].strip():
            return resolved, True
    assert first is not None, "a table has files"
    return first, False


def in_file(table: RawTable, text: bytes | bytearray, file: RawFile) -> tuple[RawTable, int]:
    """Return a resolved table with its columns in the order of a file, from its start, and the length of the header."""
    if not table.header:
        return table, 0
    names, length = _header(text, table, file)
    resolved = {column.name: column for column in table.columns}
    # Columns absent from the first file are never read.
    columns = tuple(resolved.get(name, RawColumn(name, "string", nullable=True)) for name in names)
    return replace(table, columns=columns), length


def _named(table: RawTable, text: bytes, file: RawFile) -> tuple[RawTable, int]:
    if not table.header:
        return table, 0
    names, length = _header(text, table, file)
    missing = [column.name for column in table.columns if column.name not in names]
    if missing:
        raise DataError(
            f"{file}:1: the header has no column {listed(missing)}; it has {listed(names)}",
            hint="for your own files, name columns of the header in the dataset's types and lists; "
            "otherwise fetch the dataset again with recsys download --force",
        )
    declared = {column.name: column for column in table.columns}
    return replace(table, columns=tuple(declared.get(n, RawColumn(n, None, nullable=True)) for n in names)), length


def _header(text: bytes | bytearray, table: RawTable, file: RawFile) -> tuple[list[str], int]:
    length = end_of_first_row(text, table)
    try:
        line = to_plain(bytes(text[:length]).removeprefix(BOM), table).decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}:1: the header is not UTF-8 text: {printable(bytes(text[: min(length, _HEADER_SHOWN)]))!r}",
            hint="for Latin-1 text, set encoding: latin-1 next to the table's files",
        ) from error
    reader = csv.reader(io.StringIO(line, newline=""), delimiter=plain_separator(table), quotechar=table.quote or '"')
    try:
        names = [name.replace(plain_separator(table), shown_separator(table)) for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(
            f"{file}:1: the header cannot be read: {error}", hint="give the column names as names: [..]"
        ) from error
    if not any(names):
        raise DataError(f"{file} has no header and no rows")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(f"{file}:1: the header names {listed(twice)} twice")
    return names, length


def _with_time_formats(table: RawTable, text: bytes, file: RawFile) -> RawTable:
    """Set type and format of the time columns, inferred from the text."""
    names = [column.name for column in table.columns if column.time is not None]
    if not names:
        return table
    texts = _sample(to_plain(text, table), table, names, pa.string())
    empty = pa.chunked_array([], pa.string())
    columns = (
        typed_column(column, texts.get(column.name, empty), str(file)) if column.time is not None else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))


def _typed(table: RawTable, text: bytes) -> tuple[RawColumn, ...]:
    """Return the columns; missing types, and time zones, are inferred from the text."""
    untyped = [column.name for column in table.columns if column.dtype in {None, "timestamp"}]
    rows = to_plain(text, table)
    parsed, texts = (_sample(rows, table, untyped, kind) for kind in (None, pa.binary())) if untyped else ({}, {})
    inferred = {name: _dtype(parsed[name].type, texts[name]) if name in parsed else "string" for name in untyped}
    return tuple(
        replace(column, dtype=inferred[column.name])
        if column.dtype is None or inferred.get(column.name) == "timestamp with zone"
        else column
        for column in table.columns
    )


def _sample(
    rows: bytes | bytearray, table: RawTable, columns: list[str], kind: pa.DataType | None
) -> dict[str, pa.ChunkedArray]:
    """Read sample rows, only well-formed ones if necessary; without `kind`, types are inferred."""
    types = dict.fromkeys(columns, kind) if kind is not None else None
    for whole in (False, True):
        try:
            read = read_text(rows, table, types, columns=columns, in_one=whole, others=[] if whole else None)
            break
        except pa.ArrowInvalid:
            continue
    else:  # no readable row: the reader reports it with its line
        return {}
    return dict(zip(read.column_names, read.columns, strict=True))


def _dtype(kind: pa.DataType, texts: pa.ChunkedArray) -> RawType:
    dtype: RawType = "string"
    if pa.types.is_integer(kind):
        dtype = "int64"
    elif pa.types.is_floating(kind):
        dtype = "float64"
    elif pa.types.is_boolean(kind):
        dtype = "bool"
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        dtype = "timestamp with zone"
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        dtype = "timestamp"
    identifiers = _IDENTIFIER.get(dtype) and pc.any(pc.match_substring_regex(texts, _IDENTIFIER[dtype])).as_py()
    return "string" if identifiers else dtype


Result = TypeVar("Result")
_LONGEST_ROW = 64 << 20
_COUNTED, _FIRST = 1 << 20, 1 << 20


class Lines:
    """Line numbers of a file, computed on demand."""

    def __init__(self, file: RawFile) -> None:
        self._file = file
        self._lock = Lock()
        self._before = {0: 0}
        self._is_counting = False

    def at(self, offset: int) -> int:
        """Return the line number, from 1, at the byte offset of a line start."""
        with self._lock:
            self._is_counting = True
            if offset not in self._before:
                mark = max(mark for mark in self._before if mark <= offset)
                self._before[offset] = self._before[mark] + self._count(mark, offset)
            return self._before[offset] + 1

    def record(self, offset: int, text: bytearray) -> None:
        """Count the lines of text just read if line numbers are in use; avoids a second read."""
        if self._is_counting:
            before = self.at(offset) - 1
            self._before[offset + len(text)] = before + count_lines(text)

    def _count(self, start: int, end: int) -> int:
        buffer = bytearray(_COUNTED)
        done = lines = 0
        half = False  # whether the last byte was a CR, possibly of a CRLF
        with opened(self._file) as (stream, _):
            while done < end and (count := fill(stream, memoryview(buffer)[: end - done])):
                text = buffer[min(count, max(0, start - done)) : count]
                lines += count_lines(text) - (half and text.startswith(b"\n"))
                half = text.endswith(b"\r")
                done += count
        return lines


@dataclass(frozen=True)
class Chunk:
    """Whole rows of a file, without its header.

    Attributes:
        table: The dialect, with columns in file order.
        offset: Offset of the rows in the file's text, in bytes.
    """

    file: RawFile
    table: RawTable
    offset: int
    text: bytes | bytearray
    lines: Lines


def parse_in_order(chunks: Iterable[Chunk], parse: Callable[[Chunk], Result], *, threads: int) -> Generator[Result]:
    """Parse chunks in parallel, in order.

    Memory holds at most `threads` + 1 chunks, as text or parsed, and one more during its read.
    """
    with closing(read_ahead(chunks)) as prefetched:
        yield from Threads(threads).map(parse, prefetched)


def empty_chunk(table: RawTable) -> Chunk:
    """Return a chunk without rows, of a resolved table."""
    return Chunk(table.files[0], table, 0, b"", Lines(table.files[0]))


class OpenQuoteError(DataError):
    """The end of a range of a file is within quotes."""


def chunks(
    table: RawTable,
    *,
    chunk_bytes: int,
    check: Callable[[RawFile, Sequence[str]], None],
    within: tuple[int, int | None] | None = None,
) -> Iterator[Chunk]:
    """Split the files of a table into chunks of whole rows, of about `chunk_bytes`.

    `check` gets each file and its column names, before its rows; `within` are the bytes to read of a plain file, from the
    start of a row to the start of another, None for the end.

    Raises:
        DataError: A file is unreadable or truncated, or has a row longer than 64 MiB.
        OpenQuoteError: The range of bytes ends within quotes.
    """
    first, stop = within or (0, None)
    for file in table.files:
        with opened(file) as (stream, raw):
            lines = Lines(file)
            offset, columns = first, None
            if first:
                columns, _ = in_file(table, head(file, _FIRST), file)
                check(file, [column.name for column in columns.columns] + list(columns.flags))
                raw.seek(first)
            for text in _whole_rows(stream, file, table, chunk_bytes, lines, first, stop):
                start = offset
                lines.record(start, text)
                offset += len(text)
                if columns is None:
                    columns, header = in_file(table, text, file)
                    check(file, [column.name for column in columns.columns] + list(columns.flags))
                    del text[:header]
                    start += header
                if start == 0 and text.startswith(BOM):
                    del text[: len(BOM)]
                    start += len(BOM)
                if text:
                    yield Chunk(file, columns, start, text, lines)
        if compression(file.name) is None and (size := stop or size_of(file)) is not None and offset < size:
            raise DataError(f"{file} ended after {offset:,} of {size:,} bytes", hint="run the command again")
        if columns is None:
            in_file(table, b"", file)  # an empty file: an error for tables with a header


def window(table: RawTable, file: RawFile, start: float, num_bytes: int) -> Chunk:
    """Return whole rows of a plain local file from a share of its bytes on; a line break within quotes may cut the first."""
    columns, header = in_file(table, head(file, _FIRST), file)
    offset = max(header, round(start * (size_of(file) or 0)))
    with opened(file) as (_, raw):
        raw.seek(offset)
        text = bytearray(num_bytes)
        del text[fill(cast("Stream", raw), memoryview(text)) :]
    first, end = text.find(b"\n") + 1, text.rfind(b"\n") + 1
    return Chunk(file, columns, offset + first, text[first:end], Lines(file))


def _whole_rows(
    stream: Stream, file: RawFile, table: RawTable, chunk_bytes: int, lines: Lines, offset: int, stop: int | None
) -> Iterator[bytearray]:
    """Yield blocks of whole rows from an offset to `stop`, copying only the bytes of a partial last row."""
    rest, at_end, left = b"", False, sys.maxsize if stop is None else stop - offset
    limit = max(chunk_bytes, _LONGEST_ROW)
    size = min(chunk_bytes, _FIRST)  # starts small: zeroing a large buffer is slow for thousands of small files
    while not at_end:
        text = bytearray(len(rest) + max(size, len(rest)))
        size = min(chunk_bytes, 4 * size)
        text[: len(rest)] = rest
        with memoryview(text) as view:
            filled = len(rest) + (read := fill(stream, view[len(rest) :][:left]))
        left -= read
        at_end = filled < len(text) or not left
        del text[filled:]
        end = len(text) if at_end else end_of_rows(text, table)
        if at_end:
            _refuse_open_quote(text, table, file, lines, offset, OpenQuoteError if stop else DataError)
        offset += end
        rest = bytes(text[end:])
        if len(rest) > limit:
            raise DataError(
                f"{file}: a row is longer than {limit >> 20} MiB",
                hint="check for line ends and unclosed quotes; quote: null turns quotes into ordinary characters",
            )
        del text[end:]
        if text:
            yield text


def _refuse_open_quote(
    text: bytearray, table: RawTable, file: RawFile, lines: Lines, offset: int, kind: type[DataError]
) -> None:
    """Refuse an unclosed quote: all rows after it would be one field."""
    opening = open_quote(text, table)
    if opening is not None:
        line = lines.at(offset) + count_lines(text[:opening])
        raise kind(
            f"{file}:{line}: a quote opens a field here, and the file ends before another one closes it",
            hint="add the missing quote, or set quote: null for quotes as ordinary characters",
        )


_SHOWN = 10


@dataclass(frozen=True)
class Parsed:
    """The good and bad rows of a chunk, and a number with leading zeros by column; see `parse`."""

    rows: pa.Table
    bad: Sequence[BadRow] = ()
    padded: Mapping[str, str] = field(default_factory=dict)


def parse(
    chunk: Chunk,
    columns: Sequence[str] | None,
    *,
    skip_bad: bool = False,
    every_row: bool = False,
    times: Collection[str] = (),
    whole: Collection[str] = (),
) -> Parsed:
    """Parse some columns of a chunk, in order, or all.

    `every_row` (no row may be skipped, types are fixed) and `times` (the time columns) only change the hint of the
    error. Leading zeros in the columns `whole` are found in its first and last rows: all would take longer.

    Raises:
        DataError: A row is bad and `skip_bad` is false.
    """
    table = chunk.table
    names = [column.name for column in table.columns]
    fields = names if columns is None else _fields(columns, table)
    kinds = field_types(table)
    types = {name: kinds[name] for name in fields}
    if not chunk.text:
        return Parsed(_finished(_with_times(pa.schema(list(types.items())).empty_table(), table), table, columns))
    text = to_plain(chunk.text, table)
    rows = _fast(text, table, types)
    bad: list[BadRow] = []
    if rows is None:
        line = chunk.lines.at(chunk.offset)
        rows, bad = sift(text, table, types=types, first_line=line, file=chunk.file)
        if bad and not skip_bad:
            raise _error(bad, table, times, every_row=every_row)
        rows = _with_times(rows, table)
    whole = [name for name in whole if types.get(name) == pa.int64()]
    return Parsed(_finished(rows, table, columns), bad, _padded(text, table, whole) if whole else {})


def _padded(text: bytes | bytearray, table: RawTable, columns: list[str]) -> dict[str, str]:
    """Return a number with leading zeros by column, of the first and, in a text without quotes, the last rows."""
    if len(text) > 2 * _CHECKED:
        first, last = text[:_CHECKED], text[-_CHECKED:]
        last = b"" if table.quote and table.quote.encode() in last else last.partition(b"\n")[2]
        text = first[: end_of_rows(first, table)] + last
    texts = _sample(text, table, columns, pa.string())
    found = {name: values.filter(pc.match_substring_regex(values, r"^0\d+$")) for name, values in texts.items()}
    return {name: values[0].as_py() for name, values in found.items() if len(values)}


def _fast(text: bytes | bytearray, table: RawTable, types: Mapping[str, pa.DataType]) -> pa.Table | None:
    try:
        rows = _with_times(read_text(text, table, types), table)
    except pa.ArrowInvalid:
        return None
    required = [column.name for column in table.columns if not column.nullable and column.name in types]
    return None if any(rows.column(name).null_count for name in required) else rows


def _with_times(rows: pa.Table, table: RawTable) -> pa.Table:
    for column in table.columns:
        if column.time is not None and column.name in rows.column_names:
            index = rows.column_names.index(column.name)
            rows = rows.set_column(index, column.name, to_times(rows.column(index), column.time))
    return rows


def _fields(columns: Sequence[str], table: RawTable) -> list[str]:
    names = {column.name for column in table.columns}
    flags = [flag for name in columns for flag in table.flags.get(name, ())]
    return [name for name in columns if name in names] + flags


def _error(bad: Sequence[BadRow], table: RawTable, times: Collection[str], *, every_row: bool) -> DataError:
    shown = "\n".join(f"  {row}" for row in bad[:_SHOWN])
    more = f"\n  and {len(bad) - _SHOWN} more nearby" if len(bad) > _SHOWN else ""
    hint = "fix the file, or skip bad rows with etl.on_bad_rows=skip"
    if every_row:
        hint = "fix the file: every row is prepared, in file order and with the types of the prepared data"
    elif mistyped := [column for column in table.columns if column.nullable and column.name in {r.column for r in bad}]:
        inferred = ", ".join(f"{column.name} {column.time or column.dtype}" for column in mistyped)
        first = mistyped[0]
        option = f"times: {{{first.name}: FORMAT}}" if first.name in times else f"types: {{{first.name}: string}}"
        hint += (
            f"; types come from the first rows ({inferred}), unless the dataset sets them "
            f"({option} next to the table's files)"
        )
    if any(row.reason.endswith(NO_UTF_8) for row in bad):
        hint += "; for Latin-1 text, set encoding: latin-1 next to the table's files"
    return DataError(f"rows that cannot be read:\n{shown}{more}", hint=hint)


def _finished(rows: pa.Table, table: RawTable, columns: Sequence[str] | None) -> pa.Table:
    declared = {column.name: column for column in table.columns}
    finished = []
    for name, stored in zip(rows.column_names, rows.columns, strict=True):
        values = with_separators(stored, table)
        values = values if declared[name].separator is None else split(values, declared[name])
        finished.append(values.cast(plain_type(values.type)))
    rows = pa.table(finished, rows.column_names)
    for name, flags in table.flags.items():
        if set(flags) <= set(rows.column_names):
            lists = _from_flags(rows.select(list(flags)))
            rows = rows.drop_columns(list(flags)).append_column(name, lists)
    return rows.select(list(columns)) if columns is not None else rows


def split(texts: pa.ChunkedArray, column: RawColumn) -> pa.ChunkedArray:
    """Split strings into lists."""
    lists = pc.split_pattern(texts.cast(pa.string()), str(column.separator))
    empty = pc.fill_null(pc.equal(texts, column.empty or ""), False)
    lists = pc.if_else(empty, pa.scalar([], type=lists.type), lists)
    try:
        return lists.cast(pa.list_(ARROW_TYPES[column.dtype or "string"]))
    except pa.ArrowInvalid as error:
        raise DataError(f"column {column.name}: an element of a list is not {column.dtype}: {error}") from error


def _from_flags(flags: pa.Table) -> pa.Array:
    rows = zip(*(flags.column(name).to_pylist() for name in flags.column_names), strict=True)
    lists = [[name for name, flag in zip(flags.column_names, row, strict=True) if flag] for row in rows]
    return pa.array(lists, pa.list_(pa.string()))
