"""Text files as chunks of whole rows, parsed in order: all rows of a chunk at once, or row by row to locate bad rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.cpu import Threads
from recsys_cli.data.remote import RawFile
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.data.streams import Stream, compression, fill, head, opened, size_of
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.bad_rows import NO_UTF_8, BadRow, sift
from recsys_cli.etl.reading.columns import in_file
from recsys_cli.etl.reading.dialect import (
    ARROW_TYPES,
    BOM,
    count_lines,
    end_of_rows,
    field_types,
    open_quote,
    read_text,
    to_plain,
    with_separators,
)
from recsys_cli.etl.reading.plain_types import plain_type
from recsys_cli.etl.reading.times import to_times

Item = TypeVar("Item")
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


def read_ahead(items: Iterable[Item]) -> Generator[Item]:
    """Yield items, prefetching the next one in a thread."""
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="read") as pool:
        pending: Future[Item | object] = pool.submit(next, source, end)
        try:
            while (item := pending.result()) is not end:
                pending = pool.submit(next, source, end)
                yield item  # type: ignore[misc]
        finally:
            pending.cancel()


def parse_in_order(chunks: Iterable[Chunk], parse: Callable[[Chunk], Result], *, threads: int) -> Generator[Result]:
    """Parse chunks in parallel, in order.

    Memory holds at most `threads` + 1 chunks, as text or parsed, and one more during its read.
    """
    with closing(read_ahead(chunks)) as prefetched:
        yield from Threads(threads).map(parse, prefetched)


def empty_chunk(table: RawTable) -> Chunk:
    """Return a chunk without rows, of a resolved table."""
    return Chunk(table.files[0], table, 0, b"", Lines(table.files[0]))


def chunks(table: RawTable, *, chunk_bytes: int, check: Callable[[RawFile, Sequence[str]], None]) -> Iterator[Chunk]:
    """Split the files of a table into chunks of whole rows, of about `chunk_bytes`.

    `check` gets each file and its column names, before its rows.

    Raises:
        DataError: A file is unreadable or truncated, or has a row longer than 64 MiB.
    """
    for file in table.files:
        with opened(file) as (stream, _):
            lines = Lines(file)
            offset, columns = 0, None
            for text in _whole_rows(stream, file, table, chunk_bytes, lines):
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
        if compression(file.name) is None and (size := size_of(file)) is not None and offset < size:
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


def _whole_rows(stream: Stream, file: RawFile, table: RawTable, chunk_bytes: int, lines: Lines) -> Iterator[bytearray]:
    """Yield blocks of whole rows, copying only the bytes of a partial last row."""
    rest, at_end, offset = b"", False, 0
    limit = max(chunk_bytes, _LONGEST_ROW)
    size = min(chunk_bytes, _FIRST)  # starts small: zeroing a large buffer is slow for thousands of small files
    while not at_end:
        text = bytearray(len(rest) + max(size, len(rest)))
        size = min(chunk_bytes, 4 * size)
        text[: len(rest)] = rest
        with memoryview(text) as view:
            filled = len(rest) + fill(stream, view[len(rest) :])
        at_end = filled < len(text)
        del text[filled:]
        end = len(text) if at_end else end_of_rows(text, table)
        if at_end:
            _refuse_open_quote(text, table, file, lines, offset)
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


def _refuse_open_quote(text: bytearray, table: RawTable, file: RawFile, lines: Lines, offset: int) -> None:
    """Refuse an unclosed quote: all rows after it would be one field."""
    opening = open_quote(text, table)
    if opening is not None:
        line = lines.at(offset) + count_lines(text[:opening])
        raise DataError(
            f"{file}:{line}: a quote opens a field here, and the file ends before another one closes it",
            hint="add the missing quote, or set quote: null for quotes as ordinary characters",
        )


_SHOWN = 10


@dataclass(frozen=True)
class Parsed:
    """The good and bad rows of a chunk."""

    rows: pa.Table
    bad: Sequence[BadRow] = ()


def parse(
    chunk: Chunk,
    columns: Sequence[str] | None,
    *,
    skip_bad: bool = False,
    every_row: bool = False,
    times: Collection[str] = (),
) -> Parsed:
    """Parse some columns of a chunk, in order, or all.

    `every_row` (no row may be skipped, types are fixed) and `times` (the time columns) only change the hint of the
    error.

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
    return Parsed(_finished(rows, table, columns), bad)


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
