"""Raw files, local or remote by fsspec: search, metadata, byte streams decompressed on the fly in bounded memory, and errors."""

from __future__ import annotations

import lzma
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast
from urllib.parse import urlsplit

from recsys_cli.errors import ConfigError, DataError, MissingExtraError, RecsysError
from recsys_cli.packages import pa, pq
from recsys_cli.registry import suggest

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_SECRET = re.compile(
    r"(password|passwd|pwd|secret_access_key|session_token)\s*=>?\s*['\"]?\w|://[^/\s'\"]+:[^/\s'\"]+@"
    r"|[?&](sig|signature|(x-amz|x-goog)-(signature|credential|security-token)|(\w+[_-])?token|api[_-]?key|awsaccesskeyid)=[^&\s]",
    re.IGNORECASE,
)
_QUERY = re.compile(r"(?<=[^\s'\"?])\?[^\s'\"]*")


def without_secret(text: str) -> str:
    """Return a text for messages and files, without the queries of its URLs if it holds a secret."""
    return _QUERY.sub("?…", text) if holds_secret(text) else text


def holds_secret(text: str) -> bool:
    """Whether a text has a password or key, by name or in an address."""
    return _SECRET.search(text) is not None


_URL = re.compile(r"[a-z][a-z0-9+.-]*(::|://)")
_NOT_FOUND, _MAX_MESSAGE = 404, 300
_SILENT_SECONDS = 30
"""Time for a connection to a web server, and between the bytes of its answer."""
_LOCAL = ("file://", "local://")
# Metadata keys of file systems that change with the content; the size is always compared.
_VERSION_KEYS = frozenset({
    "etag", "mtime", "modify", "lastmodified", "last-modified", "last_modified", "updated", "created", "generation",
    "md5hash", "content-md5", "digest", "checksum", "sha", "crc", "versionid", "version_id",
})  # fmt: skip


def is_url(text: str) -> bool:
    """Whether a path of a config has a protocol for fsspec, other than local files."""
    return _URL.match(text) is not None and not text.startswith(_LOCAL)


def without_protocol(text: str) -> str:
    """Return a local path without its protocol, if any."""
    return text if not text.startswith(_LOCAL) else re.sub(r"^[a-z]+://", "", text)


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URL, with the part of the Path interface used for reading.

    Attributes:
        url: The URL, possibly chained ("zip://ratings.csv::https://…").
        listed: Metadata from a listing; may be empty.
        location: File system and path from the search; the reference keeps an archive open.
    """

    url: str
    listed: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    location: tuple[AbstractFileSystem, str] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """The URL, without the query of a signed one."""
        return without_secret(self.url)

    @property
    def name(self) -> str:
        """The last component of the path, without the query of a web address."""
        address = next((link for link in self.url.split("::") if "://" in link), self.url)
        return (urlsplit(address).path if address.startswith("http") else address).rpartition("/")[2]

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """Metadata of the file system, with at least `size`; None for an unknown size.

        Raises:
            DataError: The file does not exist, or is unreachable.
            MissingExtraError: The protocol needs a package that is not installed.
        """
        if self.listed.get("size") is not None:
            return self.listed
        with url_errors(self.url):
            system, path = self._location
            info: Mapping[str, Any] = system.info(path)
            return info

    def is_file(self) -> bool:
        """Whether the file exists."""
        with url_errors(self.url):
            system, path = self._location
            return bool(system.isfile(path))

    def open(self, mode: str = "rb", *, in_order: bool = True) -> BinaryIO:
        """Open the file for reading, in order, or by range requests without read-ahead.

        Raises:
            DataError: The file does not exist, or is unreachable.
            MissingExtraError: The protocol needs a package that is not installed.
        """
        with url_errors(self.url):
            system, path = self._location
            opened: BinaryIO = system.open(path, mode, **({} if in_order else {"cache_type": "none"}))
            if in_order and not _supports_ranges(opened):
                opened.close()
                opened = system.open(path, mode, block_size=0)  # one streamed response, not seekable
            return opened

    def stamp(self) -> dict[str, object]:
        """Return the metadata that changes with the content, as JSON values."""
        versions = {key.lower(): str(value) for key, value in self.info.items() if key.lower() in _VERSION_KEYS}
        if not versions:
            with url_errors(self.url):
                system, path = self._location
                versions = {"ukey": str(system.ukey(path))}
        return {"path": str(self), "size": self.info.get("size"), **versions}

    @cached_property
    def _location(self) -> tuple[AbstractFileSystem, str]:
        return self.location or _system(self.url)


RawFile = Path | RemoteFile


def find(pattern: str) -> list[RemoteFile]:
    """Return the files of a URL, a glob or a folder, sorted by name.

    Raises:
        ConfigError: The protocol is unknown.
        DataError: The URL is unreachable.
        MissingExtraError: The protocol needs a package that is not installed.
    """
    with url_errors(pattern):
        system, path = _system(pattern)
        system.invalidate_cache()  # cached listings may be outdated
        if any(sign in path for sign in ("*[" if pattern.startswith("http") else "*?[")):  # "?" starts a query
            entries = system.glob(path, detail=True)
            entries = {name: entries[name] for name in without_marks(entries, path)}
        else:
            info = _info(system, path)
            if info is None or info.get("type") != "directory":
                return [] if info is None else [RemoteFile(pattern, info, (system, path))]
            entries = system.find(path, detail=True)
            entries = {name: info for name, info in entries.items() if not _is_hidden(name.removeprefix(path))}
        files = {name: info for name, info in entries.items() if info.get("type") != "directory"}
        return [RemoteFile(_address(system, name, pattern), files[name], (system, name)) for name in sorted(files)]


def _info(system: AbstractFileSystem, path: str) -> Mapping[str, Any] | None:
    """Return the metadata of a path; None if it does not exist.

    `isdir` would be shorter, but makes a web server send the whole file.
    """
    try:
        info: Mapping[str, Any] = system.info(path)
    except FileNotFoundError as error:
        if _cause(error) is not error:
            raise
        return None
    return info


def _cause(error: Exception) -> Exception:
    """Return an error, or the one of an unreachable server, which fsspec reports as a missing file too."""
    cause = error.__cause__
    is_missing = isinstance(cause, FileNotFoundError) or getattr(cause, "status", None) == _NOT_FOUND
    return cause if isinstance(error, FileNotFoundError) and isinstance(cause, Exception) and not is_missing else error


def without_marks(names: Iterable[str], pattern: str) -> list[str]:
    """Leave out what writers add to tables (_SUCCESS, .part.crc, _temporary), unless the glob names it."""
    fixed = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
    if _is_hidden(pattern.removeprefix(fixed)):
        return list(names)
    return [name for name in names if not _is_hidden(name.removeprefix(fixed))]


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _supports_ranges(opened: BinaryIO) -> bool:
    """Whether a server supports range requests, for files larger than one block."""
    size, block = (getattr(opened, name, None) for name in ("size", "blocksize"))
    if not size or not block or size <= block:
        return True
    try:
        opened.seek(size - 1)
        opened.read(1)
        opened.seek(0)
    except ValueError:
        return False
    return True


def _address(system: AbstractFileSystem, path: str, pattern: str) -> str:
    """Return the URL of a path: the pattern with the path in its first link with one."""
    links = pattern.split("::")
    index = next(number for number, link in enumerate(links) if "://" in link or link == links[-1])
    return "::".join([*links[:index], system.unstrip_protocol(path), *links[index + 1 :]])


def _system(url: str) -> tuple[AbstractFileSystem, str]:
    from fsspec.config import conf
    from fsspec.core import url_to_fs

    limits = {
        protocol: {"client_kwargs": _client_options(), **conf.get(protocol, {})}
        for protocol in ("http", "https")
        if any(link.startswith(f"{protocol}://") for link in url.split("::"))
    }
    system, path = url_to_fs(url, **limits)
    return system, path


def _client_options() -> dict[str, Any]:
    """Return a time limit of silence in place of aiohttp's five minutes for a whole answer."""
    from aiohttp import ClientTimeout  # needed by fsspec for these addresses

    return {"timeout": ClientTimeout(sock_connect=_SILENT_SECONDS, sock_read=_SILENT_SECONDS)}


@contextmanager
def url_errors(url: str) -> Iterator[None]:
    """Convert errors of file systems and their packages into errors with the URL.

    Raises:
        ConfigError: The protocol is unknown.
        DataError: The file does not exist, or is unreachable.
        MissingExtraError: The protocol needs a package that is not installed.
    """
    url, secret = without_secret(url), url
    try:
        yield
    except (RecsysError, MemoryError):
        raise
    except ImportError as error:
        raise MissingExtraError(f"{url}: {error}", hint=f"pip install {_package(error, url)}") from error
    except Exception as error:
        error = _cause(error)
        if isinstance(error, FileNotFoundError):
            raise DataError(f"{url} does not exist", hint="check the address and your access rights") from error
        protocol = url.partition("::")[0].partition("://")[0]
        if isinstance(error, ValueError) and "Protocol not known" in str(error):
            from fsspec import available_protocols

            protocols = available_protocols()
            raise ConfigError(
                f"{url}: unknown protocol {protocol!r}{suggest(protocol, protocols)}",
                hint=f"protocols: {', '.join(protocols)}",
            ) from error
        is_silent = isinstance(error, TimeoutError) and "http" in url
        what = f"no answer within {_SILENT_SECONDS} s" if is_silent else _brief(error).replace(secret, url)
        raise DataError(
            f"{url}: {without_secret(what)}",
            hint="check that the address is reachable; fsspec takes the usual credentials of "
            f"{protocol}, or variables FSSPEC_{protocol.upper()}_…",
        ) from error


def _brief(error: Exception) -> str:
    """Return the first line of an error, cut because some packages quote whole responses."""
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    return first if len(first) <= _MAX_MESSAGE else f"{first[:_MAX_MESSAGE]}…"


def _package(error: ImportError, url: str) -> str:
    """Return the package to install: the top-level name of the missing module."""
    missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    return (missing.name or url.partition(":")[0]).partition(".")[0]


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
