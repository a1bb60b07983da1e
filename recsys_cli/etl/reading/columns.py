"""Which columns a text file has, in its own order: those that its dataset describes, or what its first rows look like."""

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
from recsys_cli.errors import DataError
from recsys_cli.etl.reading.bad_rows import shown, whole_rows
from recsys_cli.etl.reading.dialect import plain_separator, read_text, to_plain
from recsys_cli.etl.reading.row_ends import BOM, end_of_first_row, end_of_rows, open_quote
from recsys_cli.etl.reading.times import typed_column

NOTHING: Mapping[str, str] = MappingProxyType({})
_SAMPLE_BYTES = 4 << 20
_SHOWN = 200
# Digits that are a name and no number: zeros before others, or more than a number keeps.
_NAME = {"int64": r"^[+-]?0\d", "float64": r"^[+-]?\d{16,}$"}


def resolve(table: RawTable, times: Mapping[str, str] = NOTHING) -> tuple[RawTable, bool]:
    """Return the table with all columns that its first file with rows has, each with a type, and whether there is such a file.

    What the dataset does not describe is typed by the first 4 MiB of text, for all files alike, and so is how times are written.

    Args:
        table: The table.
        times: Which columns are times, with how they are written, where the dataset does not say it.

    Raises:
        DataError: A file cannot be read or is empty, a header lacks a described column or names one twice, or a column of times
            holds none.
    """
    found = None
    for file in table.files:
        text = head(file, _SAMPLE_BYTES)
        named, header = _named(table, text, file)
        rows = text[header:]
        if len(text) == _SAMPLE_BYTES or open_quote(rows, named) is not None:
            rows = rows[: end_of_rows(rows, named)]
        typed = (replace(c, time=c.time or times.get(c.name)) for c in _typed(named, rows))
        resolved = _with_times(replace(table, columns=tuple(typed)), rows, file)
        found = found or resolved
        if text[header:].strip():
            return resolved, True
    assert found is not None, "a table has files"
    return found, False


def in_file(table: RawTable, text: bytes | bytearray, file: RawFile) -> tuple[RawTable, int]:
    """Return a table that is resolved with its columns in the order of this file, and the length of its header.

    Args:
        table: What `resolve` returned.
        text: The file's beginning.
        file: Named in the errors.

    Raises:
        DataError: The file has no header where it should, or the header names a column twice.
    """
    if not table.header:
        return table, 0
    names, length = _header(text, table, file)
    known = {column.name: column for column in table.columns}
    # A column that the first file has not: nobody can ask for it.
    columns = tuple(known.get(name, RawColumn(name, "string", nullable=True)) for name in names)
    return replace(table, columns=columns), length


def _named(table: RawTable, text: bytes, file: RawFile) -> tuple[RawTable, int]:
    if not table.header:
        return table, 0
    names, length = _header(text, table, file)
    missing = [column.name for column in table.columns if column.name not in names]
    if missing:
        raise DataError(
            f"{file}:1: the header has no column {', '.join(missing)}; it has {', '.join(names)}",
            hint="for your own files: types and lists of the dataset name columns of the header; "
            "else: recsys download --force fetches the dataset again",
        )
    known = {column.name: column for column in table.columns}
    return replace(table, columns=tuple(known.get(n, RawColumn(n, None, nullable=True)) for n in names)), length


def _header(text: bytes | bytearray, table: RawTable, file: RawFile) -> tuple[list[str], int]:
    length = end_of_first_row(text, table)
    try:
        line = to_plain(bytes(text[:length]).removeprefix(BOM), table).decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}:1: the header is not UTF-8 text: {shown(bytes(text[: min(length, _SHOWN)]))!r}",
            hint="for letters of another encoding say encoding: latin-1 beside the table's files",
        ) from error
    reader = csv.reader(io.StringIO(line, newline=""), delimiter=plain_separator(table), quotechar=table.quote or '"')
    try:
        names = [name.replace(plain_separator(table), table.separator) for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(
            f"{file}:1: the header cannot be read: {error}", hint="name the columns with names: [..]"
        ) from error
    if not any(names):
        raise DataError(f"{file} has no header and no rows")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(f"{file}:1: the header names {', '.join(twice)} twice")
    return names, length


def _with_times(table: RawTable, text: bytes, file: RawFile) -> RawTable:
    """Return a table whose columns of times have the type and the format of the text."""
    names = [column.name for column in table.columns if column.time is not None]
    if not names:
        return table
    texts = _sample(to_plain(text, table), table, names, pa.string())
    nothing = pa.chunked_array([], pa.string())
    columns = (
        typed_column(column, texts.get(column.name, nothing), str(file)) if column.time is not None else column
        for column in table.columns
    )
    return replace(table, columns=tuple(columns))


def _typed(table: RawTable, text: bytes) -> tuple[RawColumn, ...]:
    """Return the columns with a type for each: those without one, and times, are as the text looks."""
    unsure = [column.name for column in table.columns if column.dtype in {None, "timestamp"}]
    rows = to_plain(text, table)
    seen, texts = (_sample(rows, table, unsure, kind) for kind in (None, pa.binary())) if unsure else ({}, {})
    looks = {name: _dtype(seen[name].type, texts[name]) if name in seen else "string" for name in unsure}
    return tuple(
        replace(column, dtype=looks[column.name])
        if column.dtype is None or looks.get(column.name) == "timestamp with zone"
        else column
        for column in table.columns
    )


def _sample(
    rows: bytes | bytearray, table: RawTable, wanted: list[str], kind: pa.DataType | None
) -> dict[str, pa.ChunkedArray]:
    """Read some rows, those that are whole; without a type Arrow looks for one that all values have."""
    types = dict.fromkeys(wanted, kind) if kind is not None else None
    for whole in (False, True):
        try:
            text = whole_rows(rows, table) if whole else rows
            read = read_text(text, table, types, columns=wanted, in_one=whole)
            break
        except pa.ArrowInvalid:
            continue
    else:  # no row, or no field is as it should be: reading will say so, with the line
        return {}
    return dict(zip(read.column_names, read.columns, strict=True))


def _dtype(kind: pa.DataType, texts: pa.ChunkedArray) -> RawType:
    found: RawType = "string"
    if pa.types.is_integer(kind):
        found = "int64"
    elif pa.types.is_floating(kind):
        found = "float64"
    elif pa.types.is_boolean(kind):
        found = "bool"
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        found = "timestamp with zone"
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        found = "timestamp"
    names = _NAME.get(found) and pc.any(pc.match_substring_regex(texts, _NAME[found])).as_py()
    return "string" if names else found
