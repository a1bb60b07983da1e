"""CSV dialect of a raw table: the ends of its rows, its options of Arrow's CSV reader, and the location of bad rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from recsys_cli.data.raw_files import RawFile
from recsys_cli.data.source import RUNS, RawColumn, RawTable
from recsys_cli.etl.reading.times import described, to_times

BOM = b"\xef\xbb\xbf"
_LF, _CR = b"\n"[0], b"\r"[0]
Positions = npt.NDArray[np.int64]
Text = bytes | bytearray


class _Patterns(NamedTuple):
    """Patterns of text from the start of a row on, by Arrow's grammar: a quote opens a field at its start only.

    Attributes:
        closed: The text before an unclosed quote.
        rows: All rows with their line ends; a final CR may be the start of a CRLF.
        row: A row, without its line end.
    """

    closed: re.Pattern[bytes]
    rows: re.Pattern[bytes]
    row: re.Pattern[bytes]


@lru_cache(maxsize=8)
def _compiled(separator: bytes, quote: bytes) -> _Patterns:
    q = re.escape(quote)
    start = rb"(?:(?<=[\r\n])|(?<=%s)|(?<![\s\S])|(?<=\A\xef\xbb\xbf))" % re.escape(separator)
    quoted, plain = b"%s%s(?:[^%s]++|%s%s)*+%s" % (start, q, q, q, q, q), b"(?!%s)%s" % (start, q)
    text = rb"[^%s\r\n]++|%s|%s" % (q, quoted, plain) if quote else rb"[^\r\n]++"
    return _Patterns(
        re.compile(rb"(?:%s|[\r\n]++)*+" % text),
        re.compile(rb"(?:(?:%s)*+(?:\r\n|\n|\r(?!\Z)))*+" % text),
        re.compile(rb"(?:%s)++" % text),
    )


def _patterns(table: RawTable) -> _Patterns:
    return _compiled(table.separator.encode(table.encoding), (table.quote or "").encode())


def _end(pattern: re.Pattern[bytes], text: Text) -> int:
    found = pattern.match(text)
    return found.end() if found else 0


def _pairs(text: Text, table: RawTable) -> Positions | None:
    """Return the positions of the quotes if all open and close fields in turn; None for others, which take the patterns."""
    quote, separator = (table.quote or "").encode(), table.separator.encode(table.encoding)
    if not quote or len(separator) > 1:
        return None
    data = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(data == quote[0])
    before = data[quotes[::2] - 1]
    opens = (before == separator[0]) | (before == _LF) | (before == _CR) | (quotes[::2] == 0)
    after_another = np.diff(quotes, prepend=-2)[::2] == 1  # a doubled quote closes and opens
    return quotes if (opens | after_another).all() else None


def end_of_rows(text: Text, table: RawTable) -> int:
    """Return the end of the last whole row, or 0; the text starts at a row."""
    end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1))  # an LF may follow a final CR
    if not table.quote or table.quote.encode() not in text:
        return end + 1
    if (quotes := _pairs(text, table)) is None:
        return _end(_patterns(table).rows, text)
    while end >= 0 and (before := int(np.searchsorted(quotes, end))) % 2:
        opening = int(quotes[before - 1])
        end = max(text.rfind(b"\n", 0, opening), text.rfind(b"\r", 0, opening))
    return end + 1


def end_of_first_row(text: Text, table: RawTable) -> int:
    """Return the end of the first row, or of the text."""
    found = re.compile(rb"\r\n|[\r\n]").match(text, _end(_patterns(table).row, text))
    return len(text) if found is None else found.end()


def open_quote(text: Text, table: RawTable) -> int | None:
    """Return the position of an unclosed opening quote, or None."""
    quotes = _pairs(text, table)
    if not table.quote or (quotes is not None and len(quotes) % 2 == 0):
        return None
    end = _end(_patterns(table).closed, text)
    return end if end < len(text) else None


def rows_of(text: Text, table: RawTable) -> Iterator[tuple[int, int]]:
    """Yield start and end of each row, without line ends and empty lines; all quotes are closed."""
    return (row.span() for row in _patterns(table).row.finditer(text))


def count_lines(text: bytes | bytearray) -> int:
    """Count the line ends LF, CR and CRLF."""
    returns = text.count(b"\r")
    return text.count(b"\n") + (returns - text.count(b"\r\n") if returns else 0)


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
    others: list[csv.InvalidRow] | None = None,
) -> pa.Table:
    """Parse whole rows, in UTF-8 and with a separator of one byte; empty fields of nullable columns are null.

    Without `types`, those of `columns` are inferred; `in_one` parses a single block, for rows of any length. Rows with
    another number of fields are left out and added to `others`.

    Raises:
        pyarrow.ArrowInvalid: There are no rows, or a row is bad.
    """

    def keep_other(row: csv.InvalidRow) -> str:
        if others is not None:
            others.append(row)
        return "skip"

    if others is not None and not _is_utf_8(text):  # Arrow hands invalid rows over as UTF-8
        text = text.decode("latin-1").encode()
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
            delimiter=plain_separator(table),
            quote_char=table.quote or False,
            newlines_in_values=bool(table.quote),
            invalid_row_handler=None if others is None else keep_other,
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


NO_UTF_8 = "UTF-8 text"
"""End of the reason for invalid UTF-8."""

_MAX_SHOWN = 200


@dataclass(frozen=True)
class BadRow:
    """An unreadable row, skipped or raised as an error.

    Attributes:
        line: First line of the row, from 1.
        column: First bad column; None for a wrong number of fields.
    """

    file: RawFile
    line: int
    column: str | None
    reason: str
    text: str

    def __str__(self) -> str:
        column = f" column {self.column}:" if self.column else ""
        return f"{self.file}:{self.line}:{column} {self.reason}"


def sift(
    text: bytes | bytearray, table: RawTable, *, types: Mapping[str, pa.DataType], first_line: int, file: RawFile
) -> tuple[pa.Table, list[BadRow]]:
    """Separate the good and the bad rows of a text.

    The text has whole lines from `first_line` on, in UTF-8, with a separator of one character. `types` are those of the
    required fields; others are not checked.

    Returns:
        The good rows with the required columns in raw form (lists as strings), and the bad rows.
    """
    plain = replace(table, separator=plain_separator(table), encoding="utf-8")
    others: list[csv.InvalidRow] = []
    good, wrong = _values(text, plain, types, others)
    skipped = np.array([row.number - 1 for row in others], np.int64)
    whole = np.delete(np.arange(good.num_rows + len(wrong) + len(others)), skipped)
    reasons: dict[int, tuple[str | None, str]] = {
        row.number - 1: (None, f"{row.actual_columns} fields instead of {row.expected_columns}") for row in others
    }
    reasons |= {int(whole[row]): reason for row, reason in wrong.items()}
    line, offset, bad = first_line, 0, []
    for number, (start, stop) in enumerate(rows_of(text, plain) if reasons else ()):
        if number in reasons:
            line += count_lines(text[offset:start])
            offset = start
            bad.append(BadRow(file, line, *reasons[number], printable(text[start:stop], table)))
    return good, bad


def _values(
    text: Text, table: RawTable, types: Mapping[str, pa.DataType], others: list[csv.InvalidRow]
) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """Return the rows with valid required fields; column and reason of each bad row by number."""
    wrong: dict[int, tuple[str, str]] = {}
    read = {}
    by_name = {column.name: column for column in table.columns}
    for name, kind in types.items():
        column = by_name[name]
        try:
            fields = values = _column(text, table, name, kind, others)
            if column.time is not None and pa.types.is_string(kind):
                to_times(pa.chunked_array([values]), column.time)  # only a check: raises for invalid times
            failed = np.zeros(len(values), dtype=bool)
        except pa.ArrowInvalid:
            fields = _column(text, table, name, pa.binary(), others)
            values, failed = _converted(fields, name, kind, table)
        if not column.nullable:
            failed |= values.is_null().to_numpy(zero_copy_only=False)
        read[name] = values
        for row in np.flatnonzero(failed).tolist():
            wrong.setdefault(row, (name, _reason(fields[row].as_py(), column, kind)))
    keep = np.ones(len(failed), dtype=bool)
    keep[list(wrong)] = False
    return pa.table(read).filter(pa.array(keep)), wrong


def _column(text: Text, table: RawTable, name: str, kind: pa.DataType, others: list[csv.InvalidRow]) -> pa.Array:
    """Read the fields of a column, in the bytes of the text."""
    others.clear()
    values = read_text(text, table, {name: kind}, in_one=True, others=others).column(name).combine_chunks()
    if _is_utf_8(text) or not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
        return values
    stored = [value and value.decode().encode("latin-1") for value in values.cast(pa.binary()).to_pylist()]
    return pa.array(stored, pa.binary()).cast(kind)


def _is_utf_8(text: Text) -> bool:
    return len(text.decode(errors="ignore").encode()) == len(text)


def _converted(raw: pa.Array, name: str, kind: pa.DataType, table: RawTable) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return the values, null for bad fields, and a mask of the bad ones."""
    fields = raw.dictionary_encode()
    values, failed = _bisected(fields.dictionary, name, kind, table)
    bad = np.append(failed, False)[fields.indices.fill_null(len(values)).to_numpy()]
    return values.take(fields.indices), bad


def _bisected(
    fields: pa.Array, name: str, kind: pa.DataType, table: RawTable
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Convert fields; on failure, bisect down to the single bad ones."""
    try:
        return _cast(fields, name, kind, table), np.zeros(len(fields), dtype=bool)
    except pa.ArrowInvalid:
        if len(fields) == 1:
            return pa.nulls(1, kind), np.ones(1, dtype=bool)
    half = len(fields) // 2
    parts = [_bisected(part, name, kind, table) for part in (fields[:half], fields[half:])]
    return pa.concat_arrays([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _cast(fields: pa.Array, name: str, kind: pa.DataType, table: RawTable) -> pa.Array:
    """Convert fields by the CSV reader, all quoted so that empty strings stay."""
    if pa.types.is_string(kind):
        texts = fields.cast(kind)
        how = next(column.time for column in table.columns if column.name == name)
        if how is not None:
            to_times(pa.chunked_array([texts]), how)  # only a check: raises for invalid times
        return texts
    if len(fields) == 0:
        return pa.array([], kind)
    single = replace(table, columns=tuple(c for c in table.columns if c.name == name), quote='"', flags={})
    quoted = b"\n".join(b'"' + field.replace(b'"', b'""') + b'"' for field in fields.to_pylist())
    return read_text(quoted, single, {name: kind}, in_one=True).column(name).combine_chunks()


def _reason(field: bytes | None, column: RawColumn, kind: pa.DataType) -> str:
    if not field:
        return "is empty"
    text = printable(field)
    cut = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    return f"{cut!r} is not {_expected(column, kind)}"


def _expected(column: RawColumn, kind: pa.DataType) -> str:
    if kind == pa.string():
        return NO_UTF_8 if column.time is None else described(column.time)
    if pa.types.is_floating(kind):
        return "a number"
    if pa.types.is_boolean(kind):
        return "true or false"
    return (
        f"an integer that fits {kind}"
        if pa.types.is_integer(kind)
        else f"a {column.dtype}, such as 2026-01-31 12:00:00"
    )


def printable(text: bytes | bytearray, table: RawTable | None = None) -> str:
    """Decode text for messages, with the table's separators and invalid bytes in hexadecimal."""
    if table is not None and plain_separator(table) != table.separator:
        text = text.replace(plain_separator(table).encode(), shown_separator(table).encode())
    return text.decode(errors="backslashreplace")
