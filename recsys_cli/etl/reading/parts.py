"""Parts of raw tables for parallel reads: byte ranges of text from row to row, row groups of Parquet, whole other files.

A range ends after a line end. Where that is within quotes, its reader reports an `OpenQuoteError`, and the range goes on to
the end of the next one: ranges start at rows because those before them end at rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from recsys_cli.cpu import Threads
from recsys_cli.data.raw_files import RawFile, RemoteFile, compression, opened, size_of
from recsys_cli.data.source import RawTable
from recsys_cli.etl.reading.typed_files import open_parquet

_LINE_BYTES = 1 << 16
_OPEN_FILES = 16
"""Files opened at once, for the latency of object storage."""


@dataclass(frozen=True)
class FilePart:
    """A part of a file of a raw table.

    Attributes:
        file: The file.
        start: First byte of text, or row group.
        stop: End of the range; None for the end of the file.
        first: Number of rows before the part in its file; 0 for text.
    """

    file: RawFile
    start: int = 0
    stop: int | None = None
    first: int = 0

    def joined(self, after: FilePart) -> FilePart:
        """Return the range of this part and the next one."""
        return replace(self, stop=after.stop)


def parts_of(table: RawTable, num_bytes: int) -> list[FilePart]:
    """Return the parts of a table's files, in order, of about `num_bytes` each.

    Raises:
        DataError: A file is missing or unreadable.
    """
    found = Threads(_OPEN_FILES).map(partial(_parts, table, num_bytes), table.files)
    return [part for parts in found for part in parts]


def _parts(table: RawTable, num_bytes: int, file: RawFile) -> list[FilePart]:
    if table.format == "parquet":
        return list(_groups(file, num_bytes))
    if table.format == "csv" and compression(file.name) is None and (size := size_of(file)) is not None:
        return list(_ranges(file, size, num_bytes))
    return [FilePart(file)]


def _groups(file: RawFile, num_bytes: int) -> Iterator[FilePart]:
    with open_parquet(file) as opened_file:
        metadata = opened_file.metadata
        sizes = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        sizes = [(one.num_rows, one.total_byte_size) for one in sizes]
    start = first = rows = stored = 0
    for group, (group_rows, group_bytes) in enumerate(sizes):
        if stored and stored + group_bytes > num_bytes:
            yield FilePart(file, start, group, first)
            start, first, rows, stored = group, first + rows, 0, 0
        rows, stored = rows + group_rows, stored + group_bytes
    yield FilePart(file, start, len(sizes) or None, first)


def _ranges(file: RawFile, size: int, num_bytes: int) -> Iterator[FilePart]:
    start = 0
    can_seek = isinstance(file, Path) or (isinstance(file, RemoteFile) and not file.url.startswith("http"))
    if size > num_bytes and can_seek:
        with opened(file) as (_, raw):
            for wanted in range(num_bytes, size, num_bytes):
                if wanted > start and start < (stop := _after_line(raw, wanted)) < size:
                    yield FilePart(file, start, stop)
                    start = stop
    yield FilePart(file, start)


def _after_line(raw: BinaryIO, offset: int) -> int:
    """Return the position after the first line end from an offset on."""
    raw.seek(offset)
    while block := raw.read(_LINE_BYTES):
        if (found := block.find(b"\n")) >= 0:
            return offset + found + 1
        offset += len(block)
    return offset
