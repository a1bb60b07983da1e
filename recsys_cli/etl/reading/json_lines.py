"""JSON lines with the part of the ParquetFile interface that reading needs: an object per line, types from the first rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import pyarrow as pa
from pyarrow import json

from recsys_cli.data.remote import RawFile
from recsys_cli.data.streams import compression, fill, head, opened, size_of
from recsys_cli.errors import DataError

_SAMPLE, _BLOCK = 4 << 20, 4 << 20
_LONGEST = 256 << 20
_LEVELS = 100
_LINES = 50_000
"""Lines parsed at once; Arrow refuses more than 100,000 objects in a block."""


@dataclass(frozen=True)
class Size:
    """Estimated size, in the form of Parquet's metadata."""

    num_rows: int
    num_row_groups: int = 0


class JsonLines:
    """A file of JSON lines.

    Attributes:
        schema_arrow: Names and types by the first 50,000 lines or 4 MiB, and at least one line.
        metadata: The number of rows, estimated from these.
    """

    def __init__(self, file: RawFile) -> None:
        self._file = file
        text, is_whole = _start(file)
        end = len(text) if is_whole else text.rfind(b"\n") + 1
        lines = text.count(b"\n", 0, end) + (not text.endswith(b"\n") and is_whole and bool(text))
        first = next(_pieces(text[:end] or text), b"")
        self.schema_arrow = _schema(first, file) if first else pa.schema([])
        share = 1.0 if is_whole else (size_of(file) or end) / max(1, end)
        self.metadata = Size(round(lines * share * (5 if compression(file.name) and share != 1.0 else 1)))

    def iter_batches(self, rows: int, *, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, in some columns and the types of the first rows."""
        schema = pa.schema([self.schema_arrow.field(name) for name in columns])
        rest = b""
        with opened(self._file) as (stream, _):
            buffer = bytearray(_BLOCK)
            count = _BLOCK
            while count == _BLOCK:
                count = fill(stream, memoryview(buffer))
                text = rest + bytes(buffer[:count])
                end = len(text) if count < _BLOCK else text.rfind(b"\n") + 1
                text, rest = text[:end], text[end:]
                for piece in _pieces(text):
                    yield from _parsed(piece, schema, self._file).select(list(columns)).to_batches(rows)


@lru_cache(maxsize=2)
def _schema(text: bytes, file: RawFile) -> pa.Schema:
    """Return the names and types of the first lines; a table is opened several times."""
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.count(b"[") + line.count(b"{") > _LEVELS and _levels(line) > _LEVELS:  # Arrow takes minutes, or crashes
            raise DataError(
                f"{file}:{number}: lists or objects of more than {_LEVELS} levels",
                hint="leave out the nested column, or write its values as columns of their own",
            )
    return _parsed(text, None, file).schema


def _levels(line: bytes) -> int:
    """Return the depth of nested lists and objects."""
    marks = re.findall(rb"[\[\]{}]", re.sub(rb'"(?:[^"\\]|\\.)*"', b"", line))
    return max(accumulate(1 if mark in b"[{" else -1 for mark in marks), default=0)


def _start(file: RawFile) -> tuple[bytes, bool]:
    """Return the first bytes of a file, with a whole line except of a JSON array, and whether these are all."""
    size = _SAMPLE
    while len(text := head(file, size)) == size < _LONGEST and not text[: text.rfind(b"\n") + 1].strip():
        if text.lstrip().startswith(b"["):
            break
        size *= 4
    return text, len(text) < size


def _pieces(text: bytes) -> Iterator[bytes]:
    lines = [line for line in text.split(b"\n") if line.strip()]
    for first in range(0, len(lines), _LINES):
        yield b"\n".join(lines[first : first + _LINES])


def _parsed(text: bytes, schema: pa.Schema | None, file: RawFile) -> pa.Table:
    if not text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):  # pyarrow crashes at null
        start = text.lstrip().split(b"\n")[0][:20].decode(errors="replace")
        raise DataError(f"{file}: not JSON lines: a line begins with {start!r}", hint="write one object per line")
    try:
        rows = json.read_json(
            pa.BufferReader(text),
            read_options=json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1 << 16)),
            parse_options=json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{file}: not JSON lines, an object per line with the types of the first: {error}",
            hint="write one object per line; a JSON array, or a value of another type, cannot be read",
        ) from error
    return rows
