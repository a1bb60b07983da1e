"""Where rows of text end, by the grammar of Arrow's CSV parser: a quote opens a field only at the field's start.

A quoted field ends at the next quote that is not doubled. What follows up to the separator belongs to the field, and
quotes there are ordinary characters, as they are inside of an unquoted field. Outside of quotes LF, CR and CRLF end a row.
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
    """A block of the text and its quotes.

    Attributes:
        start: Its first byte.
        stop: The byte after its last one.
        inside: Whether it begins inside of a quoted field.
        quotes: Positions of the quotes that open or close a field; a doubled quote closes and opens.
    """

    start: int
    stop: int
    inside: bool
    quotes: Positions

    def opening(self, position: int) -> int | None:
        """Return the last quote before a position inside of quotes (the block's start where it has none); else None."""
        before = int(np.searchsorted(self.quotes, position))
        if (before % 2 == 1) == self.inside:
            return None
        return int(self.quotes[before - 1]) if before else self.start


def end_of_rows(text: Text, table: RawTable) -> int:
    """Return where the last whole row ends; 0 where there is none. The text begins at the start of a row."""
    blocks = list(_blocks(text, table))
    for line_end, stop in ((b"\n", len(text)), (b"\r", len(text) - 1)):  # an LF may follow on a CR at the end
        for block in reversed(blocks):
            position = text.rfind(line_end, block.start, min(block.stop, stop))
            while position >= 0:
                opening = block.opening(position)
                if opening is None:
                    return position + 1
                position = text.rfind(line_end, block.start, opening)
    return 0


def end_of_first_row(text: Text, table: RawTable) -> int:
    """Return where the first row ends: the whole text where it has no line end outside of quotes."""
    for block in _blocks(text, table):
        found = _line_ends(text, block)
        if len(found):
            end = int(found[0]) + 1
            return end + (text[end - 1] == _CR and text[end : end + 1] == b"\n")
    return len(text)


def open_quote(text: Text, table: RawTable) -> int | None:
    """Return where a quoted field begins that the text does not close, or None."""
    blocks = list(_blocks(text, table))
    if sum(len(block.quotes) for block in blocks) % 2 == 0:
        return None
    quotes = np.concatenate([block.quotes for block in blocks])
    after_doubled = np.diff(quotes, prepend=-2)[::2] == 1
    return int(quotes[::2][~after_doubled][-1])


def rows_of(text: Text, table: RawTable) -> tuple[Positions, Positions, Positions]:
    """Return where rows begin and end (without their line ends), and how many fields each has; empty lines are none.

    The text is plain: it has a separator of one byte.
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
    """Return how many line ends a text has: LF, CR and CRLF."""
    returns = text.count(b"\r")
    return text.count(b"\n") + (returns - text.count(b"\r\n") if returns else 0)


def _line_ends(text: Text, block: _Block) -> Positions:
    data = np.frombuffer(text, np.uint8)[block.start : block.stop]
    return _outside(block, np.flatnonzero((data == _LF) | (data == _CR)) + block.start)


def _outside(block: _Block, positions: Positions) -> Positions:
    """Return those positions of a block that are not inside of quotes."""
    inside = (np.searchsorted(block.quotes, positions) % 2 == 1) != block.inside
    return positions[~inside]


def _marked(text: Text, table: RawTable) -> tuple[Text, int]:
    """Return the text with a separator of one byte, in which no byte has moved, and that byte."""
    separator = table.separator.encode(table.encoding)
    if len(separator) == 1:
        return text, separator[0]
    return text.replace(separator, b"\x1f" * len(separator)), 0x1F


def _blocks(text: Text, table: RawTable) -> Iterator[_Block]:
    """Yield the text in blocks, with the quotes that open or close a field."""
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
        block = _Block(start, stop, inside, _that_count(quotes, at_start, inside, closed).astype(np.int32))
        yield block
        inside ^= len(block.quotes) % 2 == 1
        if len(block.quotes) and not inside:
            closed = int(block.quotes[-1])


def _that_count(quotes: Positions, at_start: npt.NDArray[np.bool_], inside: bool, closed: int) -> Positions:
    """Return the quotes that open or close a field.

    Args:
        quotes: Positions of all quotes of a block.
        at_start: Which of them stand where a field begins.
        inside: Whether the block begins inside of quotes.
        closed: The last quote that closed a field before the block.
    """
    doubled = np.diff(quotes, prepend=closed) == 1
    openings = slice(int(inside), None, 2)  # if every quote counts
    wrong = ~(at_start | doubled)[openings]
    if not wrong.any():
        return quotes
    first = int(np.argmax(wrong)) * 2 + openings.start
    counted = list(range(first))
    opened = False
    last = int(quotes[first - 1]) if first else closed
    places = zip(range(first, len(quotes)), quotes[first:].tolist(), at_start[first:].tolist(), strict=True)
    for place, position, begins in places:
        if opened or begins or position == last + 1:
            counted.append(place)
            opened, last = not opened, position
    return quotes[counted]
