"""CSV dialect of a raw table in terms of Arrow's CSV reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from recsys_cli.data.source import RUNS, RawColumn, RawTable
from recsys_cli.etl.reading.row_ends import BOM

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
_UNIT_SEPARATOR = "\x1f"
_BLOCK = 1 << 20


def plain_separator(table: RawTable) -> str:
    """Return the table's separator, or a substitute of one byte for a longer one, or for one within the last column."""
    is_plain = len(table.separator.encode()) == 1 and not takes_rest(table)
    return table.separator if is_plain else _UNIT_SEPARATOR


def shown_separator(table: RawTable) -> str:
    """Return the separator in text, a space for `RUNS`."""
    return " " if table.separator == RUNS else table.separator


def takes_rest(table: RawTable) -> bool:
    """Whether the last column takes the rest of a line: a list with the separator of the fields."""
    return not table.header and bool(table.columns) and table.columns[-1].separator == table.separator


def to_plain(text: bytes | bytearray, table: RawTable) -> bytes | bytearray:
    """Convert text to UTF-8 and a separator of one byte, for the parser."""
    if table.encoding != "utf-8":
        text = text.decode(table.encoding).encode()
    if takes_rest(table):
        separator = re.escape(table.separator.encode())
        field = b"[^\r\n]*?" + separator
        lines = b"(?m)^" + b"(%s)" % field * (len(table.columns) - 1)
        keep = len(table.separator.encode())
        return re.sub(lines, lambda one: b"".join(part[:-keep] + b"\x1f" for part in one.groups()), text)
    if table.separator == RUNS:
        return re.sub(rb"[ \t]+", b"\x1f", re.sub(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)", b"", text))
    if plain_separator(table) != table.separator:
        text = text.replace(table.separator.encode(), plain_separator(table).encode())
    return text


def with_separators(texts: pa.ChunkedArray, table: RawTable) -> pa.ChunkedArray:
    """Restore the table's separators in strings; `to_plain` also replaces them within quotes."""
    if plain_separator(table) == table.separator or not pa.types.is_string(texts.type):
        return texts
    return pc.replace_substring(texts, plain_separator(table), shown_separator(table))


def field_type(column: RawColumn) -> pa.DataType:
    """Return the type of a raw field; lists are strings."""
    return pa.string() if column.separator is not None or column.dtype is None else ARROW_TYPES[column.dtype]


def field_types(table: RawTable) -> dict[str, pa.DataType]:
    """Return the types of all raw fields."""
    flags = {flag: pa.int8() for names in table.flags.values() for flag in names}
    return {column.name: field_type(column) for column in table.columns} | flags


def read_text(
    text: bytes | bytearray,
    table: RawTable,
    types: Mapping[str, pa.DataType] | None,
    *,
    columns: Sequence[str] | None = None,
    in_one: bool = False,
) -> pa.Table:
    """Parse whole rows, in UTF-8 and with a separator of one byte; empty fields of nullable columns are null.

    Without `types`, those of `columns` are inferred; `in_one` parses a single block, for rows of any length.

    Raises:
        pyarrow.ArrowInvalid: There are no rows, or a row is bad.
    """
    if text.startswith(BOM):  # Arrow drops a BOM at the start of a text, but keeps it in a field after a line end
        text = b"\n" + text
    return csv.read_csv(
        pa.BufferReader(text),
        read_options=csv.ReadOptions(
            column_names=[column.name for column in table.columns],
            use_threads=False,
            block_size=max(_BLOCK, len(text) + 1) if in_one else _BLOCK,
        ),
        parse_options=csv.ParseOptions(
            delimiter=plain_separator(table), quote_char=table.quote or False, newlines_in_values=bool(table.quote)
        ),
        convert_options=csv.ConvertOptions(
            include_columns=list(types or columns or ()),
            column_types=types,
            null_values=["", *table.nulls],
            decimal_point=table.decimal,
            strings_can_be_null=any(column.nullable for column in table.columns),
            quoted_strings_can_be_null=False,
        ),
    )
