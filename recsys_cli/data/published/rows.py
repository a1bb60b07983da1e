"""Lines of text files, and Parquet tables from rows, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.data.raw_files import fill, opened
from recsys_cli.errors import DataError
from recsys_cli.events import Emit, Message, Progress

Row = TypeVar("Row")
_BLOCK = 16 << 20
_ROWS = 200_000


def blocks(file: Path, emit: Emit) -> Iterator[bytes]:
    """Yield a text file in blocks of whole lines, decompressed.

    Raises:
        DataError: The file is unreadable or damaged.
    """
    rest = b""
    buffer = bytearray(_BLOCK)
    size = file.stat().st_size
    with opened(file) as (stream, stored):
        while count := fill(stream, memoryview(buffer)):
            text = rest + bytes(buffer[:count])
            end = text.rfind(b"\n") + 1
            rest = text[end:]
            emit(Progress(f"convert {file.name}", done=min(stored.tell(), size), total=size, unit="bytes"))
            if end:
                yield text[:end]
    if rest:
        yield rest


def lines(file: Path, emit: Emit, *, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file with their numbers, from 1, without empty ones.

    Raises:
        DataError: The file is unreadable or damaged, or has another encoding.
    """
    number = 0
    for block in blocks(file, emit):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            if line.strip():
                try:
                    yield number, line.rstrip(b"\r").decode(encoding)
                except UnicodeDecodeError as error:
                    raise DataError(f"{file.name}:{number}: not {encoding} text") from error


def parsed(
    file: Path, parse: Callable[[str], Row | None], emit: Emit, *, encoding: str = "utf-8", header: bool = False
) -> Iterator[Row]:
    """Yield the parsed lines of a file; lines without a result are skipped, counted and reported.

    Raises:
        DataError: The file is unreadable, or most of its lines are malformed.
    """
    good, bad, first = 0, 0, ""
    for number, line in islice(lines(file, emit, encoding=encoding), int(header), None):
        row = parse(line)
        if row is None:
            bad += 1
            first = first or f"line {number}: {line[:200]!r}"
        else:
            good += 1
            yield row
    if bad > good:
        raise DataError(
            f"{file.name}: {bad:,} of {good + bad:,} lines have another format, the first is {first}",
            hint="pass the publisher's file of this dataset",
        )
    if bad:
        emit(Message(f"{file.name}: {bad:,} malformed lines are skipped, the first is {first}", level="warning"))


def write_rows(path: Path, schema: pa.Schema, rows: Iterable[tuple[object, ...]]) -> None:
    """Write rows as a Parquet file.

    Raises:
        DataError: A value does not fit its type.
    """
    source = iter(rows)
    with pq.ParquetWriter(path, schema) as writer:
        while chunk := list(islice(source, _ROWS)):
            try:
                arrays = [
                    pa.array(values, field.type) for values, field in zip(zip(*chunk, strict=True), schema, strict=True)
                ]
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise DataError(f"{path.stem}: {error}", hint="pass the publisher's file of this dataset") from error
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def unique(rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    """Yield the first row of each value in the first column."""
    seen = set()
    for row in rows:
        if row[0] not in seen:
            seen.add(row[0])
            yield row
