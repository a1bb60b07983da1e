"""Files at URLs: how fsspec finds, opens and describes them, and what is said where it cannot."""

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

_URL = re.compile(r"[a-z][a-z0-9+.-]*(::|://)")
_LOCAL = ("file://", "local://")
# What file systems call the signs by which an edited file is told from the one before; the size is always one.
_MARKS = frozenset({
    "etag", "mtime", "modify", "lastmodified", "last-modified", "last_modified", "updated", "created", "generation",
    "md5hash", "content-md5", "digest", "checksum", "sha", "crc", "versionid", "version_id",
})  # fmt: skip


def is_url(text: str) -> bool:
    """Whether a path in a config is for fsspec: it has a protocol, and that is not the one for files of this machine."""
    return _URL.match(text) is not None and not text.startswith(_LOCAL)


def without_protocol(text: str) -> str:
    """Return a path of this machine without the protocol that may stand before it."""
    return text if not text.startswith(_LOCAL) else re.sub(r"^[a-z]+://", "", text)


@dataclass(frozen=True)
class RemoteFile:
    """A file at a URL, with as much of the interface of a Path as reading takes.

    Attributes:
        url: Where it is; may be chained ("zip://ratings.csv::https://…").
        known: What a listing said of it already; may be empty.
    """

    url: str
    known: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        """The URL."""
        return self.url

    @property
    def name(self) -> str:
        """The last part of its path, without a query."""
        first = self.url.partition("::")[0]
        return (urlsplit(first).path or first).rpartition("/")[2]

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """What the file system says of it: at least `size`, which is None where a server does not tell.

        Raises:
            DataError: It is not there, or cannot be reached.
            MissingExtraError: The protocol needs a package that is not installed.
        """
        if self.known.get("size") is not None:
            return self.known
        with saying(self.url):
            system, path = _system(self.url)
            info: Mapping[str, Any] = system.info(path)
            return info

    def is_file(self) -> bool:
        """Whether it is there."""
        with saying(self.url):
            system, path = _system(self.url)
            return bool(system.isfile(path))

    def open(self, mode: str = "rb", *, in_order: bool = True) -> BinaryIO:
        """Open it for reading.

        Args:
            mode: "rb"; nothing is written.
            in_order: Whether it is read from the beginning to the end; else every read is a request of its own,
                of those bytes alone.

        Raises:
            DataError: It is not there, or cannot be reached.
            MissingExtraError: The protocol needs a package that is not installed.
        """
        with saying(self.url):
            system, path = _system(self.url)
            opened: BinaryIO = system.open(path, mode, **({} if in_order else {"cache_type": "none"}))
            return opened

    def stamp(self) -> dict[str, object]:
        """Return what changes when the file does, as far as the file system tells: JSON values."""
        marks = {key.lower(): str(value) for key, value in self.info.items() if key.lower() in _MARKS}
        if not marks:
            with saying(self.url):
                system, path = _system(self.url)
                marks = {"ukey": str(system.ukey(path))}
        return {"path": self.url, "size": self.info.get("size"), **marks}


RawFile = Path | RemoteFile


def find(pattern: str) -> list[RemoteFile]:
    """Return the files of a URL, a glob of URLs, or all files of a folder there, in the order of their names.

    Raises:
        ConfigError: No such protocol is known.
        DataError: They cannot be reached.
        MissingExtraError: The protocol needs a package that is not installed.
    """
    with saying(pattern):
        system, path = _system(pattern)
        system.invalidate_cache()  # a listing of some time ago may be another one now
        if _has_magic(path, pattern):
            found = system.glob(path, detail=True)
        elif system.isdir(path) and not system.isfile(path):
            found = system.find(path, detail=True)
            found = {name: info for name, info in found.items() if not _is_hidden(name.removeprefix(path))}
        else:
            return [RemoteFile(pattern)] if system.exists(path) else []
        files = {name: info for name, info in found.items() if info.get("type") != "directory"}
        return [RemoteFile(_address(system, name, pattern), files[name]) for name in sorted(files)]


def _has_magic(path: str, pattern: str) -> bool:
    """Whether a path is a glob: "?" begins the query of a web address."""
    return any(sign in path for sign in ("*[" if pattern.startswith("http") else "*?["))


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _address(system: AbstractFileSystem, path: str, pattern: str) -> str:
    """Return the URL of a path that was found: the first link of a chain is another one, the rest is the same."""
    _, chained, rest = pattern.partition("::")
    return f"{system.unstrip_protocol(path)}{chained}{rest}"


def _system(url: str) -> tuple[AbstractFileSystem, str]:
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    return system, path


@contextmanager
def saying(url: str) -> Iterator[None]:
    """Turn what goes wrong in a file system, whose packages have errors of their own, into an error that names the URL.

    Raises:
        ConfigError: No such protocol is known.
        DataError: It is not there, or cannot be reached.
        MissingExtraError: The protocol needs a package that is not installed.
    """
    try:
        yield
    except (RecsysError, MemoryError):
        raise
    except ImportError as error:
        raise MissingExtraError(f"{url}: {error}", hint=f"pip install {_package(error, url)}") from error
    except FileNotFoundError as error:
        raise DataError(f"{url} is not there", hint="is the address right, and may it be read from here?") from error
    except Exception as error:
        protocol = url.partition("::")[0].partition("://")[0]
        if isinstance(error, ValueError) and "Protocol not known" in str(error):
            from fsspec import available_protocols

            known = available_protocols()
            raise ConfigError(
                f"{url}: no protocol {protocol!r} is known{suggest(protocol, known)}", hint=f"known: {', '.join(known)}"
            ) from error
        raise DataError(
            f"{url}: {str(error) or type(error).__name__}",
            hint=f"access is set up as for fsspec: the usual credentials of {protocol}, or variables FSSPEC_{protocol.upper()}_…",
        ) from error


def _package(error: ImportError, url: str) -> str:
    """Return what to install: the name of the module that was missing is that of its package, but for its own parts."""
    missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    return (missing.name or url.partition(":")[0]).partition(".")[0]
