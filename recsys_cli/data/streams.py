"""The bytes of a raw text file: from disk or from a URL, unpacked on the way, and never more than asked for in memory."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, Protocol, cast

import pyarrow as pa

from recsys_cli.data.remote import RawFile, RemoteFile, saying
from recsys_cli.errors import DataError, RecsysError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4", ".xz": "xz"}
"""Suffix → how a file with it is packed."""

_MAGIC = {
    "gzip": rb"\x1f\x8b\x08", "zstd": rb"\x28\xb5\x2f\xfd", "bz2": rb"BZh[1-9](1AY&SY|\x17rE8P\x90)",
    "lz4": rb"\x04\x22\x4d\x18", "xz": rb"\xfd7zXZ\x00",
}  # fmt: skip
_NO_TEXT = {
    "a zip archive": (rb"PK\x03\x04", "unpack it, or read a member of it as zip://NAME.csv::FILE"),
    "a parquet file": (rb"PAR1", "name it .parquet"),
    "text in UTF-16": (rb"\xff\xfe|\xfe\xff", "save it as UTF-8"),
}
_MAGIC_BYTES = 10


class Stream(Protocol):
    """Bytes in order."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill a buffer as far as there are bytes at hand; return how many, 0 at the end."""


def compression(name: str) -> str | None:
    """Return how a file of a name is packed, or None."""
    return next((codec for suffix, codec in COMPRESSIONS.items() if name.lower().endswith(suffix)), None)


def unpacked_name(name: str) -> str:
    """Return the name that a file has once it is unpacked."""
    return name if compression(name) is None else name[: name.rindex(".")]


def size_of(file: RawFile) -> int | None:
    """Return the size of a file as it is stored, in bytes; None where a server does not tell.

    Raises:
        DataError: It is not there.
    """
    if isinstance(file, RemoteFile):
        return file.info.get("size")
    if not file.is_file():
        raise DataError(f"{file} is not there", hint="recsys download --force fetches a dataset again")
    return file.stat().st_size


def stamp(file: RawFile) -> dict[str, object]:
    """Return what changes when a file does: JSON values."""
    if isinstance(file, RemoteFile):
        return file.stamp()
    status = file.stat()
    return {"path": str(file), "size": status.st_size, "mtime_ns": status.st_mtime_ns}


@contextmanager
def opened(file: RawFile) -> Iterator[tuple[Stream, BinaryIO]]:
    """Open a text file: yields its text as bytes, and what those come from, which tells how much of it was read.

    Raises:
        DataError: It is not there, cannot be read, is not packed as its name says, or ends too early.
    """
    size_of(file)
    with ExitStack() as stack, naming(file):
        raw = stack.enter_context(_raw(file))
        start = raw.read(_MAGIC_BYTES)
        _check(file, start)
        try:
            raw.seek(0)
        except (OSError, ValueError, NotImplementedError):  # a server that sends a file in one piece only
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
    """Fill a buffer, or as much of it as there are bytes left; return how many came."""
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
def naming(file: RawFile) -> Iterator[None]:
    """Turn what goes wrong while a file is read into an error that names it.

    Raises:
        DataError: It cannot be read.
    """
    try:
        if isinstance(file, RemoteFile):
            with saying(file.url):
                yield
        else:
            yield
    except RecsysError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{file} is not there", hint="recsys download --force fetches a dataset again") from error
    except (OSError, EOFError, pa.ArrowInvalid, lzma.LZMAError) as error:
        raise DataError(
            f"{file}: cannot be read to its end: {error}", hint="is it whole? compare its size with where it is from"
        ) from error


def _raw(file: RawFile) -> BinaryIO:
    return file.open("rb") if isinstance(file, RemoteFile) else file.open("rb", buffering=0)


def _check(file: RawFile, start: bytes) -> None:
    """Stop at a file whose first bytes say something else than its name."""
    codec = compression(file.name)
    found = next((name for name, magic in _MAGIC.items() if re.match(magic, start, re.DOTALL)), None)
    if codec == found:
        for what, (magic, hint) in _NO_TEXT.items() if codec is None else ():
            if re.match(magic, start):
                raise DataError(f"{file} is {what}", hint=hint)
    elif codec is None:
        suffix = next(suffix for suffix, name in COMPRESSIONS.items() if name == found)
        raise DataError(
            f"{file} is packed with {found}, and its name does not say so", hint=f"name it {file.name}{suffix}"
        )
    elif start:
        what = f"packed with {found}" if found else f"not packed with {codec}"
        suffix = file.name[file.name.rindex(".") :]
        raise DataError(f"{file} is {what}, and {suffix} says otherwise", hint="name it as what it is")
