"""How the dialect of a raw table is told to Arrow's CSV reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from recsys_cli.data.source import RawColumn, RawTable
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
NULLS = [""]
"""Fields that are null."""
_UNIT_SEPARATOR = "\x1f"
_BLOCK = 1 << 20


def plain_separator(table: RawTable) -> str:
    """Return a separator of one character: the table's own, or one that stands for it."""
    return table.separator if len(table.separator.encode()) == 1 else _UNIT_SEPARATOR


def to_plain(text: bytes | bytearray, table: RawTable) -> bytes | bytearray:
    """Bring text to UTF-8 and a separator of one character, which is all that the parser knows."""
    if table.encoding != "utf-8":
        text = text.decode(table.encoding).encode()
    if plain_separator(table) != table.separator:
        text = text.replace(table.separator.encode(), plain_separator(table).encode())
    return text


def with_separators(texts: pa.ChunkedArray, table: RawTable) -> pa.ChunkedArray:
    """Return texts with the table's own separators: inside of quotes the plain one stands for them, too."""
    if plain_separator(table) == table.separator or not pa.types.is_string(texts.type):
        return texts
    return pc.replace_substring(texts, plain_separator(table), table.separator)


def field_type(column: RawColumn) -> pa.DataType:
    """Return the type of a field as it stands in the file: a list is a text there."""
    return pa.string() if column.separator is not None or column.dtype is None else ARROW_TYPES[column.dtype]


def field_types(table: RawTable) -> dict[str, pa.DataType]:
    """Return the types of all fields as they stand in the file."""
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
    """Read a plain text: an empty field is null, and so is an empty text that may be left out.

    Args:
        text: Whole rows, in UTF-8 and with a separator of one character.
        table: The dialect; its columns are known.
        types: The columns to read and their types; None for those that their values look like.
        columns: The columns to read, where no types are given.
        in_one: Read all at once, so that a row may have any length.

    Raises:
        pyarrow.ArrowInvalid: There is no row, or one cannot be read.
    """
    if text.startswith(BOM):  # at the start of a text Arrow drops it; behind a line end it is part of the field
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
            null_values=NULLS,
            strings_can_be_null=any(column.nullable for column in table.columns),
            quoted_strings_can_be_null=False,
        ),
    )
