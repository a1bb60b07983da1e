"""Row boundaries of text, by the grammar of Arrow's CSV parser: a quote opens a field only at the field's start.

A quoted field ends at the next quote that is not doubled. Text between that quote and the separator belongs to the
field; quotes there, and in unquoted fields, are ordinary characters. Outside of quotes LF, CR and CRLF end a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recsys_cli.data.source import RawTable

BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20
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
    for start in range(0, len(text), _BLOCK):
        stop = min(len(text), start + _BLOCK)
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
