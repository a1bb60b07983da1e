"""How the dialect of a raw table is told to Arrow's CSV reader, and where rows end in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import csv

from recsys_cli.data.source import RawColumn, RawTable

ARROW_TYPES: dict[str, pa.DataType] = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "timestamp with zone": pa.timestamp("us", "UTC"),
}
NULLS = [""]
"""Fields that are null."""
_UNIT_SEPARATOR = "\x1f"


def plain_separator(table: RawTable) -> str:
    """Return a separator of one character: the table's own, or one that stands for it."""
    return table.separator if len(table.separator) == 1 else _UNIT_SEPARATOR


def to_plain(text: bytes | bytearray, table: RawTable) -> bytes | bytearray:
    """Bring text to UTF-8 and a separator of one character, which is all that the parser knows."""
    if table.encoding != "utf-8":
        text = text.decode(table.encoding).encode()
    if len(table.separator) > 1:
        text = text.replace(table.separator.encode(), plain_separator(table).encode())
    return text


def field_type(column: RawColumn) -> pa.DataType:
    """Return the type of a field as it stands in the file: a list is a text there."""
    return pa.string() if column.separator is not None or column.dtype is None else ARROW_TYPES[column.dtype]


def parse_options(table: RawTable, **more: object) -> csv.ParseOptions:
    """Return how lines are cut into fields."""
    return csv.ParseOptions(
        delimiter=plain_separator(table), quote_char=table.quote or False, newlines_in_values=bool(table.quote), **more
    )


def convert_options(table: RawTable, wanted: Sequence[str]) -> csv.ConvertOptions:
    """Return how fields become values: an empty field is null, and so is an empty text that may be left out."""
    flags = {flag: pa.int8() for names in table.flags.values() for flag in names}
    types = {column.name: field_type(column) for column in table.columns} | flags
    return csv.ConvertOptions(
        include_columns=list(wanted),
        column_types=types,
        null_values=NULLS,
        strings_can_be_null=any(column.nullable for column in table.columns),
        quoted_strings_can_be_null=False,
    )


def end_of_rows(text: bytes | bytearray, table: RawTable) -> int:
    """Return where the last whole row ends: at a line end that is not inside of quotes; 0 where there is none."""
    end = text.rfind(b"\n") + 1
    quote = table.quote.encode() if table.quote else None
    if quote is None or text.count(quote, 0, end) % 2 == 0:
        return end
    # Either a field goes on after the last line end, or a quote stands in the middle of a field, where it means nothing.
    opening = _open_field(text, end, quote, table.separator.encode(table.encoding))
    return end if opening is None else text.rfind(b"\n", 0, opening) + 1


def _open_field(text: bytes | bytearray, end: int, quote: bytes, separator: bytes) -> int | None:
    """Return where a field begins whose quotes are not closed before `end`."""
    q, between = re.escape(quote), re.escape(separator)
    quoted = re.compile(rb"(?:\A|[\r\n]|%b)(%b)[^%b]*+(?:%b%b[^%b]*+)*+(%b|\Z)" % (between, q, q, q, q, q, q))
    last = None
    for last in quoted.finditer(text, 0, end):  # noqa: B007 - only the last one matters
        pass
    return last.start(1) if last is not None and not last[2] else None
