"""Parquet files in batches of about so many bytes, however their row groups were cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.data.remote import RawFile, RemoteFile
from recsys_cli.data.streams import naming, size_of
from recsys_cli.errors import DataError

_PROBED = 1_000
_MAX_ROWS = 2_000_000
_MIN_BUFFER, _MAX_BUFFER = 64 << 10, 8 << 20
_COUNTED_FILES = 256


@contextmanager
def open_parquet(file: RawFile, *, buffer_bytes: int = _MIN_BUFFER) -> Iterator[pq.ParquetFile]:
    """Open a parquet file.

    Args:
        file: Which.
        buffer_bytes: How much of a column is fetched at a time; without it Arrow takes a row group's whole column.

    Raises:
        DataError: It is not there, is no parquet file, or is on a server that sends no parts of files.
    """
    size_of(file)
    with ExitStack() as stack, naming(file):
        source: str | BinaryIO = str(file)
        if isinstance(file, RemoteFile):
            source = stack.enter_context(file.open(in_order=False))
        try:
            opened = stack.enter_context(pq.ParquetFile(source, buffer_size=buffer_bytes))
        except pa.ArrowInvalid as error:
            raise DataError(f"{file}: not a parquet file: {error}") from error
        yield opened


def parquet_schema(file: RawFile) -> pa.Schema:
    """Return the names and types of a file's columns.

    Raises:
        DataError: See `open_parquet`.
    """
    with open_parquet(file) as opened:
        schema: pa.Schema = opened.schema_arrow
        return schema.remove_metadata()


def parquet_batches(file: RawFile, columns: Sequence[str], *, chunk_bytes: int) -> Iterator[pa.Table]:
    """Yield a file's rows in order, as the file stores them.

    A batch takes about a quarter of `chunk_bytes`, because rows of one file differ in size. Row groups without number
    are read across, and of a giant one not more is held than a batch and a buffer for each column.

    Raises:
        DataError: It cannot be read.
    """
    buffer = min(_MAX_BUFFER, max(_MIN_BUFFER, chunk_bytes // (4 * max(1, len(columns)))))
    with open_parquet(file, buffer_bytes=buffer) as opened:
        rows = _rows_at_a_time(opened, columns, chunk_bytes // 4)
        for batch in opened.iter_batches(rows, columns=list(columns)):
            yield pa.Table.from_batches([batch]).select(list(columns))


def _rows_at_a_time(file: pq.ParquetFile, columns: Sequence[str], num_bytes: int) -> int:
    """Return how many rows fill so many bytes in memory, by the first ones: in the file, dictionaries make them small."""
    rows = file.metadata.num_rows
    stored = sum(file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups))
    few = max(1, min(_PROBED, num_bytes * rows // max(1, stored)))
    if rows <= few:
        return few
    probe = next(file.iter_batches(few, columns=list(columns)))
    return max(1, min(_MAX_ROWS, num_bytes * probe.num_rows // max(1, probe.nbytes)))


def estimated_parquet_rows(files: Sequence[RawFile]) -> int:
    """Return the rows of all files: counted in the first 256 of them, and for the rest by their sizes."""
    counted, rest = files[:_COUNTED_FILES], files[_COUNTED_FILES:]
    rows = 0
    for file in counted:
        with open_parquet(file) as opened:
            rows += opened.metadata.num_rows
    if not rest:
        return rows
    seen, unseen = (sum(size_of(file) or 0 for file in part) for part in (counted, rest))
    return rows + round(rows * unseen / max(1, seen))
