"""Columns of a text file in file order, typed by the dataset or inferred from the first rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from recsys_cli.data.remote import RawFile
from recsys_cli.data.source import RawColumn, RawTable, RawType
from recsys_cli.data.streams import head
from recsys_cli.errors import DataError, listed
from recsys_cli.etl.reading.bad_rows import printable, whole_rows
from recsys_cli.etl.reading.dialect import (
    BOM,
    end_of_first_row,
    end_of_rows,
    open_quote,
    plain_separator,
    read_text,
    shown_separator,
    to_plain,
)
from recsys_cli.etl.reading.times import typed_column

NOTHING: Mapping[str, str] = MappingProxyType({})
_SAMPLE_BYTES = 4 << 20
_SHOWN = 200
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
        resolved = _with_times(replace(table, columns=tuple(typed)), rows, file)
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
            f"{file}:1: the header is not UTF-8 text: {printable(bytes(text[: min(length, _SHOWN)]))!r}",
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


def _with_times(table: RawTable, text: bytes, file: RawFile) -> RawTable:
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
            text = whole_rows(rows, table) if whole else rows
            read = read_text(text, table, types, columns=columns, in_one=whole)
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
