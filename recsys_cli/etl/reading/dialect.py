"""CSV dialect of a raw table: the ends of its rows, and its options of Arrow's CSV reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from recsys_cli.data.source import RUNS, RawColumn, RawTable

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
