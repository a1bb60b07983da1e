"""A large text file as chunks of whole lines, parsed by a few threads and handed out in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from recsys_cli.data.source import RawTable
from recsys_cli.etl.dialect import to_plain

CHUNK_BYTES = 16 << 20
"""Text parsed at a time by one thread. Smaller costs more per chunk, larger costs memory."""


@dataclass(frozen=True)
class Chunk:
    """Some whole lines of a file, without its header.

    Attributes:
        file: Where they are from.
        offset: Where they begin in the file, in bytes.
        text: The lines, in UTF-8 and with a separator of one character.
    """

    file: Path
    offset: int
    text: bytes

    @property
    def first_line(self) -> int:
        """Number of the first line in the file, from 1: counted only where somebody wants to know."""
        with self.file.open("rb") as file:
            blocks = iter(lambda: file.read(min(1 << 24, self.offset - file.tell())), b"")
            return 1 + sum(block.count(b"\n") for block in blocks)


def parse_in_order(
    path: Path, table: RawTable, parse: Callable[[Chunk], pa.Table], *, threads: int
) -> Iterator[pa.Table]:
    """Parse a file's chunks in parallel; at most `threads` + 1 of them are in memory."""
    with ThreadPoolExecutor(threads, thread_name_prefix="parse") as pool:
        ahead: deque[Future[pa.Table]] = deque()
        try:
            for chunk in _chunks(path, table):
                ahead.append(pool.submit(parse, chunk))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _chunks(path: Path, table: RawTable) -> Iterator[Chunk]:
    quote = table.quote.encode() if table.quote else None
    with path.open("rb") as file:
        if table.header:
            file.readline()
        start = file.tell()
        while text := _whole_lines(file, start):
            while quote and text.count(quote) % 2 and (more := file.readline()):
                text += more  # the chunk would have ended inside a quoted field
            yield Chunk(path, start, to_plain(text, table))
            start = file.tell()


def _whole_lines(file: BinaryIO, start: int) -> bytes:
    """Read about CHUNK_BYTES from `start`, up to the end of a line, in one piece: joining pieces would copy them."""
    file.seek(start + CHUNK_BYTES)
    file.readline()
    end = file.tell()
    file.seek(start)
    return file.read(end - start)
