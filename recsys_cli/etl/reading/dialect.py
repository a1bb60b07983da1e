"""CSV dialect of a raw table: the ends of its rows, its options of Arrow's CSV reader, and the location of bad rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from recsys_cli.data.raw_files import RawFile
from recsys_cli.data.source import RUNS, RawColumn, RawTable
from recsys_cli.etl.reading.times import described, to_times

BOM = b"\xef\xbb\xbf"
_SCANNED = 1 << 20
_LF, _CR = b"\n"[0], b"\r"[0]
Positions = npt.NDArray[np.int64] | npt.NDArray[np.int32]
Text = bytes | bytearray


@dataclass(frozen=True)
class _Block:
    """A block of text with its quotes.

    Attributes:
        inside: Whether the block starts in a quoted field.
        quotes: Positions of opening and closing quotes; a doubled quote closes and opens.
    """

    start: int
    stop: int
    inside: bool
    quotes: Positions

    def opening(self, position: int) -> int | None:
        """Return the opening quote (or the block's start) before a quoted position, else None."""
        before = int(np.searchsorted(self.quotes, position))
        if (before % 2 == 1) == self.inside:
            return None
        return int(self.quotes[before - 1]) if before else self.start


def end_of_rows(text: Text, table: RawTable) -> int:
    """Return the end of the last whole row, or 0; the text starts at a row."""
    blocks = list(_blocks(text, table))
    for line_end, stop in ((b"\n", len(text)), (b"\r", len(text) - 1)):  # an LF may follow a final CR
        for block in reversed(blocks):
            position = text.rfind(line_end, block.start, min(block.stop, stop))
            while position >= 0:
                opening = block.opening(position)
                if opening is None:
                    return position + 1
                position = text.rfind(line_end, block.start, opening)
    return 0


def end_of_first_row(text: Text, table: RawTable) -> int:
    """Return the end of the first row, or of the text."""
    for block in _blocks(text, table):
        ends = _line_ends(text, block)
        if len(ends):
            end = int(ends[0]) + 1
            return end + (text[end - 1] == _CR and text[end : end + 1] == b"\n")
    return len(text)


def open_quote(text: Text, table: RawTable) -> int | None:
    """Return the position of an unclosed opening quote, or None."""
    blocks = list(_blocks(text, table))
    if sum(len(block.quotes) for block in blocks) % 2 == 0:
        return None
    quotes = np.concatenate([block.quotes for block in blocks])
    after_doubled = np.diff(quotes, prepend=-2)[::2] == 1
    return int(quotes[::2][~after_doubled][-1])


def rows_of(text: Text, table: RawTable) -> tuple[Positions, Positions, Positions]:
    """Return start, end (without line end) and number of fields of each row, skipping empty lines.

    The text is plain, with a separator of one byte.
    """
    ends, separators = [], []
    data = np.frombuffer(text, np.uint8)
    separator = _marked(text, table)[1]
    for block in _blocks(text, table):
        ends.append(_line_ends(text, block))
        separators.append(_outside(block, np.flatnonzero(data[block.start : block.stop] == separator) + block.start))
    stops = np.concatenate([*ends, [len(text)]]).astype(np.int64)
    starts = np.concatenate([[0], stops[:-1] + 1]).astype(np.int64)
    fields = np.diff(np.searchsorted(np.concatenate([*separators, []]), np.append(starts, len(text) + 1))) + 1
    filled = stops > starts
    return starts[filled], stops[filled], fields[filled]


def count_lines(text: bytes | bytearray) -> int:
    """Count the line ends LF, CR and CRLF."""
    returns = text.count(b"\r")
    return text.count(b"\n") + (returns - text.count(b"\r\n") if returns else 0)


def _line_ends(text: Text, block: _Block) -> Positions:
    data = np.frombuffer(text, np.uint8)[block.start : block.stop]
    return _outside(block, np.flatnonzero((data == _LF) | (data == _CR)) + block.start)


def _outside(block: _Block, positions: Positions) -> Positions:
    inside = (np.searchsorted(block.quotes, positions) % 2 == 1) != block.inside
    return positions[~inside]


def _marked(text: Text, table: RawTable) -> tuple[Text, int]:
    """Return the text with a separator of one byte, repeated to keep all positions, and that byte."""
    separator = table.separator.encode(table.encoding)
    if len(separator) == 1:
        return text, separator[0]
    return text.replace(separator, b"\x1f" * len(separator)), 0x1F


def _blocks(text: Text, table: RawTable) -> Iterator[_Block]:
    quote = table.quote.encode() if table.quote else None
    if quote is None or text.find(quote) < 0:
        yield _Block(0, len(text), inside=False, quotes=np.zeros(0, np.int64))
        return
    marked, separator = _marked(text, table)
    data = np.frombuffer(marked, np.uint8)
    opens = np.zeros(256, dtype=bool)
    opens[[_LF, _CR, separator]] = True
    first = len(BOM) if text.startswith(BOM) else 0
    inside, closed = False, -1
    for start in range(0, len(text), _SCANNED):
        stop = min(len(text), start + _SCANNED)
        quotes = np.flatnonzero(data[start:stop] == quote[0]) + start
        at_start = opens[data[quotes - 1]] | (quotes == first)
        block = _Block(start, stop, inside, _delimiting(quotes, at_start, inside, closed).astype(np.int32))
        yield block
        inside ^= len(block.quotes) % 2 == 1
        if len(block.quotes) and not inside:
            closed = int(block.quotes[-1])


def _delimiting(quotes: Positions, at_start: npt.NDArray[np.bool_], inside: bool, closed: int) -> Positions:
    """Return the opening and closing quotes of a block among all its quotes.

    `at_start` marks quotes at the start of a field, `inside` a block that starts in a quoted field; `closed` is the
    last closing quote before the block.
    """
    doubled = np.diff(quotes, prepend=closed) == 1
    openings = slice(int(inside), None, 2)  # if every quote delimits a field
    wrong = ~(at_start | doubled)[openings]
    if not wrong.any():
        return quotes
    first = int(np.argmax(wrong)) * 2 + openings.start
    delimiting = list(range(first))
    opened = False
    last = int(quotes[first - 1]) if first else closed
    rest = zip(range(first, len(quotes)), quotes[first:].tolist(), at_start[first:].tolist(), strict=True)
    for index, position, starts_field in rest:
        if opened or starts_field or position == last + 1:
            delimiting.append(index)
            opened, last = not opened, position
    return quotes[delimiting]


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
    starts, stops, fields = rows_of(text, plain)
    reasons: dict[int, tuple[str | None, str]] = {
        int(row): (None, f"{fields[row]} fields instead of {len(table.columns)}")
        for row in np.flatnonzero(fields != len(table.columns))
    }
    whole = np.flatnonzero(fields == len(table.columns))
    good, wrong = _values(text, plain, types, [slice(starts[row], stops[row]) for row in whole])
    reasons |= {int(whole[row]): reason for row, reason in wrong.items()}
    line, offset, lines = first_line, 0, []
    for row in sorted(reasons):
        line += count_lines(text[offset : starts[row]])
        offset = int(starts[row])
        lines.append(line)
    bad = [
        BadRow(file, line, *reasons[row], printable(text[starts[row] : stops[row]], table))
        for row, line in zip(sorted(reasons), lines, strict=True)
    ]
    return good, bad


def whole_rows(text: bytes | bytearray, table: RawTable) -> bytes:
    """Return the rows of a plain text with one field per column."""
    starts, stops, fields = rows_of(text, replace(table, separator=plain_separator(table), encoding="utf-8"))
    whole = fields == len(table.columns)
    return b"\n".join(bytes(text[a:b]) for a, b in zip(starts[whole], stops[whole], strict=True))


def _values(
    text: bytes | bytearray, table: RawTable, types: Mapping[str, pa.DataType], rows: Sequence[slice]
) -> tuple[pa.Table, dict[int, tuple[str, str]]]:
    """Return the rows with valid required fields; column and reason of each bad row by number."""
    if not rows:
        return pa.schema(list(types.items())).empty_table(), {}
    whole = b"\n".join(bytes(text[row]) for row in rows)
    raw = read_text(whole, table, dict.fromkeys(types, pa.binary()), in_one=True)
    wrong: dict[int, tuple[str, str]] = {}
    read = {}
    by_name = {column.name: column for column in table.columns}
    for name, kind in types.items():
        column, fields = by_name[name], raw.column(name).combine_chunks()
        read[name], failed = _converted(fields, column, kind, table)
        for row in np.flatnonzero(failed).tolist():
            wrong.setdefault(row, (name, _reason(fields[row].as_py(), column, kind)))
    keep = np.ones(raw.num_rows, dtype=bool)
    keep[list(wrong)] = False
    return pa.table(read).filter(pa.array(keep)), wrong


def _converted(
    raw: pa.Array, column: RawColumn, kind: pa.DataType, table: RawTable
) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return the values, null for bad fields, and a mask of the bad ones."""
    fields = raw.dictionary_encode()
    distinct = fields.dictionary
    values, failed = _bisected(distinct, column.name, kind, table)
    taken = values.take(fields.indices)
    bad = np.append(failed, False)[fields.indices.fill_null(len(distinct)).to_numpy()]
    if not column.nullable:
        bad |= taken.is_null().to_numpy(zero_copy_only=False)
    return taken, bad


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
