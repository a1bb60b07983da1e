"""Remote files by fsspec: search, metadata, reading and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urlsplit

from recsys_cli.errors import ConfigError, DataError, MissingExtraError, RecsysError
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
        """Open the file for reading.

        Args:
            mode: "rb".
            in_order: Whether to read sequentially; otherwise every read is a range request without read-ahead.

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
        if _has_magic(path, pattern):
            entries = system.glob(path, detail=True)
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


def _has_magic(path: str, pattern: str) -> bool:
    """Whether a path is a glob; "?" starts the query of a web address."""
    return any(sign in path for sign in ("*[" if pattern.startswith("http") else "*?["))


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
