"""Text files as chunks of whole rows, parsed by a few threads and handed out in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from recsys_cli.data.remote import RawFile
from recsys_cli.data.source import RawTable
from recsys_cli.data.streams import Stream, compression, fill, opened, size_of
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.columns import in_file
from recsys_cli.etl.reading.row_ends import BOM, count_lines, end_of_rows, open_quote

Item = TypeVar("Item")
Result = TypeVar("Result")
_LONGEST_ROW = 64 << 20
_COUNTED, _FIRST = 1 << 20, 1 << 20


class Lines:
    """Numbers of the lines of a file. They cost a look at every byte, so they are counted once somebody asks."""

    def __init__(self, file: RawFile) -> None:
        self._file = file
        self._lock = Lock()
        self._before = {0: 0}
        self._asked = False

    def at(self, offset: int) -> int:
        """Return the number, from 1, of the line that begins at an offset of the file's text."""
        with self._lock:
            self._asked = True
            if offset not in self._before:
                known = max(mark for mark in self._before if mark <= offset)
                self._before[offset] = self._before[known] + self._count(known, offset)
            return self._before[offset] + 1

    def passed(self, offset: int, text: bytearray) -> None:
        """Take note of text that was read: from the first question on, nothing has to be read a second time."""
        if self._asked:
            before = self.at(offset) - 1
            self._before[offset + len(text)] = before + count_lines(text)

    def _count(self, start: int, end: int) -> int:
        buffer = bytearray(_COUNTED)
        done = lines = 0
        half = False  # of a CRLF
        with opened(self._file) as (stream, _):
            while done < end and (count := fill(stream, memoryview(buffer)[: end - done])):
                text = buffer[min(count, max(0, start - done)) : count]
                lines += count_lines(text) - (half and text.startswith(b"\n"))
                half = text.endswith(b"\r")
                done += count
        return lines


@dataclass(frozen=True)
class Chunk:
    """Some whole rows of a file, without its header.

    Attributes:
        file: Where they are from.
        table: The dialect, with the columns in the order of this file.
        offset: Where they begin in the file's text, in bytes.
        text: The rows, as they stand there.
        lines: Tells the number of their first line.
    """

    file: RawFile
    table: RawTable
    offset: int
    text: bytes | bytearray
    lines: Lines


def read_ahead(items: Iterable[Item]) -> Generator[Item]:
    """Yield items of which the next one is fetched by a thread while the caller works on this one."""
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
    """Parse chunks in parallel; at most `threads` + 1 of them, as text or parsed, are in memory, and one that is being read."""
    with ThreadPoolExecutor(threads, thread_name_prefix="parse") as pool, closing(read_ahead(chunks)) as coming:
        ahead: deque[Future[Result]] = deque()
        try:
            for chunk in coming:
                ahead.append(pool.submit(parse, chunk))
                del chunk  # the future lets go of the text when it is parsed, and so must we
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def nothing(table: RawTable) -> Chunk:
    """Return a chunk without rows, of a table whose columns are known."""
    return Chunk(table.files[0], table, 0, b"", Lines(table.files[0]))


def chunks(table: RawTable, *, chunk_bytes: int, check: Callable[[RawFile, Sequence[str]], None]) -> Iterator[Chunk]:
    """Cut the files of a table, whose columns are known, into chunks of about so many bytes of text.

    Args:
        table: What `columns.resolve` returned.
        chunk_bytes: Size of the text; a row is never cut, and may be longer.
        check: Told each file and its columns, before any of its rows.

    Raises:
        DataError: A file cannot be read, is shorter than it should be, or has a row longer than 64 MiB.
    """
    for file in table.files:
        with opened(file) as (stream, _):
            lines = Lines(file)
            offset, columns = 0, None
            for text in _whole_rows(stream, file, table, chunk_bytes, lines):
                start = offset
                lines.passed(start, text)
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
            raise DataError(f"{file} ended after {offset:,} of {size:,} bytes", hint="run again")
        if columns is None:
            in_file(table, b"", file)  # an empty file: wrong where there has to be a header


def _whole_rows(stream: Stream, file: RawFile, table: RawTable, chunk_bytes: int, lines: Lines) -> Iterator[bytearray]:
    """Yield the text in pieces that end where rows do. Bytes are not copied, but for those after the last whole row."""
    rest, at_end, offset = b"", False, 0
    limit = max(chunk_bytes, _LONGEST_ROW)
    size = min(chunk_bytes, _FIRST)  # memory is cleared before it is filled, and thousands of files may be small
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
                hint="is this text with line ends, and is every quote closed? quote: null takes quotes as ordinary characters",
            )
        del text[end:]
        if text:
            yield text


def _refuse_open_quote(text: bytearray, table: RawTable, file: RawFile, lines: Lines, offset: int) -> None:
    """Stop at a quote without its other half: all rows behind it would be one field."""
    opening = open_quote(text, table)
    if opening is not None:
        line = lines.at(offset) + count_lines(text[:opening])
        raise DataError(
            f"{file}:{line}: a quote opens a field here, and the file ends before another one closes it",
            hint="is a quote missing there? quote: null takes quotes as ordinary characters",
        )
