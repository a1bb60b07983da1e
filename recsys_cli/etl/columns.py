"""Which columns a text file has, in its own order: those that its dataset describes, or what its first rows look like."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv

from recsys_cli.data.source import RawColumn, RawTable, RawType
from recsys_cli.errors import DataError
from recsys_cli.etl.dialect import parse_options, plain_separator, to_plain

_SAMPLE_BYTES = 4 << 20


def resolve(table: RawTable, path: Path) -> RawTable:
    """Return the table with the columns that this file has, in the file's order.

    A header decides the order; columns that the dataset does not describe are kept as text, or, where it describes none
    (a table of the user's own), typed by the first rows.

    Raises:
        DataError: The header lacks a column, names one twice, or the file is empty.
    """
    if not table.header:
        return table
    with path.open("rb") as file:
        head = to_plain(file.read(_SAMPLE_BYTES), table)
    names = _header(head, table, path)
    if not table.columns:
        return replace(table, columns=_infer(head, table, path))
    missing = [column.name for column in table.columns if column.name not in names]
    if missing:
        raise DataError(
            f"{path}:1: the header has no column {', '.join(missing)}; it has {', '.join(names)}",
            hint="is this the file of that dataset? recsys download --force fetches it again",
        )
    known = {column.name: column for column in table.columns}
    return replace(table, columns=tuple(known.get(n, RawColumn(n, "string", nullable=True)) for n in names))


def _header(head: bytes, table: RawTable, path: Path) -> list[str]:
    first = head.split(b"\n", 1)[0].decode(errors="replace").lstrip("\ufeff").rstrip("\r")
    names = next(csv.reader([first], delimiter=plain_separator(table), quotechar=table.quote or '"'), [])
    if not any(names):
        raise DataError(f"{path} has no header and no rows")
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise DataError(f"{path}:1: the header names {', '.join(twice)} twice")
    return names


def _infer(head: bytes, table: RawTable, path: Path) -> tuple[RawColumn, ...]:
    whole = head if len(head) < _SAMPLE_BYTES else head[: head.rfind(b"\n") + 1]
    try:
        sample = arrow_csv.read_csv(pa.BufferReader(whole), parse_options=parse_options(table))
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: {error}", hint="every line has to have the same fields as the header") from error
    return tuple(RawColumn(field.name, _dtype(field.type), nullable=True) for field in sample.schema)


def _dtype(kind: pa.DataType) -> RawType:
    if pa.types.is_integer(kind):
        return "int64"
    return "float64" if pa.types.is_floating(kind) else "string"
