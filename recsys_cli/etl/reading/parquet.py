"""Parquet files in batches of about so many bytes and of plain types, however their row groups were cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.data.remote import RawFile, RemoteFile
from recsys_cli.data.source import RawColumn, RawTable
from recsys_cli.data.streams import naming, size_of
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.csv_parse import split
from recsys_cli.etl.reading.dialect import ARROW_TYPES
from recsys_cli.etl.reading.plain_types import plain_type, to_plain_type
from recsys_cli.etl.reading.times import read_times, stored_type
from recsys_cli.features.spec import is_list

_PROBED = 1_000
_SAMPLE_ROWS = 100_000
"""Rows that tell how times are written."""
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


def described_schema(table: RawTable) -> pa.Schema:
    """Return the names and plain types of a table's columns: those of its first file, or what the dataset says of them.

    Raises:
        DataError: The file cannot be read, names a column twice, or has not what the dataset describes.
    """
    first, *others = table.files
    stored = _schema(first)
    twice = sorted({name for name in stored.names if stored.names.count(name) > 1})
    if twice:
        raise DataError(f"{first}: there is more than one column {', '.join(twice)}")
    said = {column.name: column for column in table.columns}
    if unknown := [name for name in said if name not in stored.names]:
        raise DataError(
            f"{first}: no column {', '.join(unknown)}, of which the dataset's types or lists say something; "
            f"it has {', '.join(stored.names)}"
        )
    kinds = {field.name: _said(said.get(field.name), plain_type(field.type)) for field in stored}
    for column in table.columns:
        if column.time is not None and column.separator is None:
            kinds[column.name] = stored_type(_sample(table, column.name), column.time, str(first), column.name)[1]
    for file in others:  # a column of nulls has no type of its own: another file may know it
        if not any(pa.types.is_null(kind) for kind in kinds.values()):
            break
        also = {field.name: plain_type(field.type) for field in _schema(file)}
        kinds |= {name: also.get(name, kind) for name, kind in kinds.items() if pa.types.is_null(kind)}
    return pa.schema(list(kinds.items()))


def described_times(table: RawTable, times: Mapping[str, str]) -> RawTable:
    """Return a table with how its columns of times are written, as the first rows show it.

    Args:
        table: The table.
        times: Which columns are times, with how they are written, where the dataset does not say it.

    Raises:
        DataError: A file cannot be read, or the texts of a column are no times.
    """
    stored = _schema(table.files[0])
    columns = {column.name: column for column in table.columns}
    for name in dict.fromkeys((*(name for name, one in columns.items() if one.time is not None), *times)):
        column = columns.get(name, RawColumn(name, None, nullable=True))
        if name not in stored.names or column.separator is not None or is_list(stored.field(name).type):
            continue
        said = column.time or times[name]
        how = stored_type(_sample(table, name), said, str(table.files[0]), name)[0]
        columns[name] = replace(column, time=how)
    return replace(table, columns=tuple(columns.values()))


def _sample(table: RawTable, name: str) -> pa.ChunkedArray:
    """Return the first values of a column, of the first file that has rows."""
    values = None
    for file in table.files:
        with open_parquet(file) as opened:
            kind = plain_type(opened.schema_arrow.field(name).type)
            batch = next(opened.iter_batches(_SAMPLE_ROWS, columns=[name]), None)
        stored = pa.chunked_array([], kind) if batch is None else pa.chunked_array([batch.column(0)])
        values = to_plain_type(stored, kind, name=name, where=str(file))
        if len(values):
            break
    return values


def _schema(file: RawFile) -> pa.Schema:
    with open_parquet(file) as opened:
        return opened.schema_arrow


def _said(column: RawColumn | None, kind: pa.DataType) -> pa.DataType:
    """Return the type of a column of which the dataset may say another, or that its texts are lists."""
    if column is None:
        return kind
    said = kind if column.dtype is None else plain_type(ARROW_TYPES[column.dtype])
    return pa.list_(said) if column.separator is not None or (is_list(kind) and column.dtype is not None) else said


def parquet_rows(
    table: RawTable, schema: pa.Schema, *, chunk_bytes: int, check: Callable[[RawFile, Sequence[str]], None]
) -> Iterator[pa.Table]:
    """Yield the rows of a table's files in order.

    Args:
        table: The files, and what is said of their columns.
        schema: The columns to read, with the types to give them.
        chunk_bytes: See `parquet_batches`.
        check: Told each file and its columns, before any of its rows.

    Raises:
        DataError: A file cannot be read, or a value does not fit its type.
    """
    lists = {column.name: column for column in table.columns if column.separator is not None}
    times = {column.name: column.time for column in table.columns if column.time is not None}
    for file in table.files:
        first = 0
        for stored in parquet_batches(file, schema.names, chunk_bytes=chunk_bytes, check=check):
            columns = {}
            for target in schema:
                values = stored.column(target.name)
                if target.name in lists and pa.types.is_string(plain_type(values.type)):
                    values = split(values, lists[target.name])
                elif target.name in times:
                    plain = to_plain_type(values, plain_type(values.type), name=target.name, where=str(file))
                    values = read_times(plain, times[target.name], file=str(file), name=target.name, first=first)
                columns[target.name] = to_plain_type(values, target.type, name=target.name, where=str(file))
            first += stored.num_rows
            yield pa.table(columns, schema=schema)


def parquet_batches(
    file: RawFile,
    columns: Sequence[str],
    *,
    chunk_bytes: int,
    check: Callable[[RawFile, Sequence[str]], None] = lambda *_: None,
) -> Iterator[pa.Table]:
    """Yield a file's rows in order, as the file stores them.

    A batch takes about a quarter of `chunk_bytes`, because rows of one file differ in size. Row groups without number
    are read across, and of a giant one not more is held than a batch and a buffer for each column.

    Raises:
        DataError: It cannot be read.
    """
    buffer = min(_MAX_BUFFER, max(_MIN_BUFFER, chunk_bytes // (4 * max(1, len(columns)))))
    with open_parquet(file, buffer_bytes=buffer) as opened:
        check(file, opened.schema_arrow.names)
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
