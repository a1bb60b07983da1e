"""Byte streams of raw text files, local or remote, decompressed on the fly in bounded memory."""

from __future__ import annotations

import lzma
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq

from recsys_cli.data.remote import RawFile, RemoteFile, url_errors
from recsys_cli.errors import DataError, RecsysError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4", ".xz": "xz"}
"""File suffix → compression codec."""

_MAGIC = {
    "gzip": rb"\x1f\x8b\x08", "zstd": rb"\x28\xb5\x2f\xfd", "bz2": rb"BZh[1-9](1AY&SY|\x17rE8P\x90)",
    "lz4": rb"\x04\x22\x4d\x18", "xz": rb"\xfd7zXZ\x00",
}  # fmt: skip
_NO_TEXT = {
    "a zip archive": (rb"PK\x03\x04", "unpack it, or read a member of it as zip://NAME.csv::FILE"),
    "a Parquet file": (rb"PAR1", "rename it to .parquet"),
    "text in UTF-16": (rb"\xff\xfe|\xfe\xff", "save it as UTF-8"),
}
_MAGIC_BYTES = 10
_FETCH_AGAIN = "fetch the dataset again with recsys download --force"


class Stream(Protocol):
    """A sequential byte stream."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Read available bytes into a buffer; return their number, 0 at the end."""


def compression(name: str) -> str | None:
    """Return the compression codec of a file name, or None."""
    return next((codec for suffix, codec in COMPRESSIONS.items() if name.lower().endswith(suffix)), None)


def unpacked_name(name: str) -> str:
    """Return the file name without the suffix of its compression."""
    return name if compression(name) is None else name[: name.rindex(".")]


def size_of(file: RawFile) -> int | None:
    """Return the stored size of a file in bytes; None if a server does not report it.

    Raises:
        DataError: The file does not exist.
    """
    if isinstance(file, RemoteFile):
        return file.info.get("size")
    if not file.is_file():
        raise DataError(f"{file} does not exist", hint=_FETCH_AGAIN)
    return file.stat().st_size


def stamp(file: RawFile) -> dict[str, object]:
    """Return the metadata that changes with a file's content, as JSON values."""
    if isinstance(file, RemoteFile):
        return file.stamp()
    status = file.stat()
    return {"path": str(file), "size": status.st_size, "mtime_ns": status.st_mtime_ns}


@contextmanager
def opened(file: RawFile) -> Iterator[tuple[Stream, BinaryIO]]:
    """Open a text file; yields the decompressed stream, and the raw file, for its position.

    Raises:
        DataError: The file does not exist, is unreadable or truncated, or its compression differs from its suffix.
    """
    size_of(file)
    with ExitStack() as stack, file_errors(file):
        raw = stack.enter_context(_raw(file))
        start = raw.read(_MAGIC_BYTES)
        _check(file, start)
        try:
            raw.seek(0)
        except (OSError, ValueError, NotImplementedError):  # a server without range requests
            raw = stack.enter_context(_raw(file))
        codec = compression(file.name)
        if codec is None or not start:
            yield cast("Stream", raw), raw
        elif codec == "xz":
            yield cast("Stream", stack.enter_context(lzma.LZMAFile(raw))), raw
        else:
            source = pa.PythonFile(raw, mode="r") if isinstance(file, RemoteFile) else pa.OSFile(str(file))
            yield stack.enter_context(pa.CompressedInputStream(source, codec)), source


def fill(stream: Stream, buffer: memoryview) -> int:
    """Fill a buffer as far as possible; return the number of bytes."""
    done = 0
    while done < len(buffer) and (count := stream.readinto(buffer[done:])):
        done += count
    return done


def head(file: RawFile, num_bytes: int) -> bytes:
    """Return the first bytes of a file's text.

    Raises:
        DataError: See `opened`.
    """
    buffer = bytearray(num_bytes)
    with opened(file) as (stream, _):
        return bytes(buffer[: fill(stream, memoryview(buffer))])


@contextmanager
def file_errors(file: RawFile) -> Iterator[None]:
    """Convert errors of reading into errors with the file's name.

    Raises:
        DataError: The file is unreadable.
    """
    try:
        if isinstance(file, RemoteFile):
            with url_errors(file.url):
                yield
        else:
            yield
    except RecsysError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{file} does not exist", hint=_FETCH_AGAIN) from error
    except (OSError, EOFError, pa.ArrowInvalid, lzma.LZMAError) as error:
        raise DataError(
            f"{file}: cannot be read to its end: {error}", hint="compare its size with the original"
        ) from error


def _raw(file: RawFile) -> BinaryIO:
    return file.open("rb") if isinstance(file, RemoteFile) else file.open("rb", buffering=0)


def _check(file: RawFile, start: bytes) -> None:
    """Check that the first bytes of a file match the compression of its name."""
    codec = compression(file.name)
    actual = next((name for name, magic in _MAGIC.items() if re.match(magic, start, re.DOTALL)), None)
    if codec == actual:
        for what, (magic, hint) in _NO_TEXT.items() if codec is None else ():
            if re.match(magic, start):
                raise DataError(f"{file} is {what}", hint=hint)
    elif codec is None:
        suffix = next(suffix for suffix, name in COMPRESSIONS.items() if name == actual)
        raise DataError(
            f"{file} is compressed with {actual}, but has no suffix {suffix}", hint=f"rename it to {file.name}{suffix}"
        )
    elif start:
        what = f"compressed with {actual}" if actual else f"not compressed with {codec}"
        suffix = file.name[file.name.rindex(".") :]
        raise DataError(f"{file} is {what}, but has the suffix {suffix}", hint="rename it to match its content")


_TAIL = 8
"""Bytes after the footer of a Parquet file: its length and a magic word."""


def open_parquet(source: Any, *, buffer_size: int = 0) -> pq.ParquetFile:
    """Open a path or a file, without its embedded Arrow schema if that has types unknown to this pyarrow (string views).

    Raises:
        pa.ArrowInvalid: The file is not Parquet, or its footer contradicts itself.
    """
    file = _opened(source, buffer_size)
    _check_footer(file.metadata)
    return file


def _opened(source: Any, buffer_size: int) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(source, buffer_size=buffer_size)
    except pa.ArrowInvalid as error:
        if "Unrecognized type" not in str(error):
            raise
    if not isinstance(source, str):
        return pq.ParquetFile(source, metadata=_without_arrow_schema(source), buffer_size=buffer_size)
    with pa.OSFile(source) as file:
        metadata = _without_arrow_schema(file)
    return pq.ParquetFile(source, metadata=metadata, buffer_size=buffer_size)


def _check_footer(metadata: pq.FileMetaData) -> None:
    """Check the type and the number of values of each column chunk: pyarrow crashes on some damaged ones."""
    kinds = [metadata.schema.column(position).physical_type for position in range(metadata.num_columns)]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for position, kind in enumerate(kinds):
            chunk = group.column(position)
            if chunk.physical_type != kind or chunk.num_values < group.num_rows:
                raise pa.ArrowInvalid(
                    f"its footer is damaged: column {metadata.schema.column(position).path} has {chunk.num_values:,} values of "
                    f"{chunk.physical_type} for {group.num_rows:,} rows of {kind}"
                )


def _without_arrow_schema(source: Any) -> pq.FileMetaData:
    source.seek(-_TAIL, os.SEEK_END)
    length = int.from_bytes(source.read(4), "little")
    source.seek(-_TAIL - length, os.SEEK_END)
    footer = source.read(length + _TAIL).replace(b"ARROW:schema", b"arrow-schema", 1)
    return pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
