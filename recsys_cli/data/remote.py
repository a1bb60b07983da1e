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
_NOT_FOUND, _LONGEST = 404, 300
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
        place: The file system that found it and the path in it: an archive closes when nobody holds its system any more.
    """

    url: str
    known: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    place: tuple[AbstractFileSystem, str] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """The URL."""
        return self.url

    @property
    def name(self) -> str:
        """The last part of its path, without the query of a web address."""
        address = next((link for link in self.url.split("::") if "://" in link), self.url)
        return (urlsplit(address).path if address.startswith("http") else address).rpartition("/")[2]

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
            system, path = self._place
            info: Mapping[str, Any] = system.info(path)
            return info

    def is_file(self) -> bool:
        """Whether it is there."""
        with saying(self.url):
            system, path = self._place
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
            system, path = self._place
            opened: BinaryIO = system.open(path, mode, **({} if in_order else {"cache_type": "none"}))
            if in_order and not _sends_parts(opened):
                opened.close()
                opened = system.open(path, mode, block_size=0)  # as one long answer, which cannot be rewound
            return opened

    def stamp(self) -> dict[str, object]:
        """Return what changes when the file does, as far as the file system tells: JSON values."""
        marks = {key.lower(): str(value) for key, value in self.info.items() if key.lower() in _MARKS}
        if not marks:
            with saying(self.url):
                system, path = self._place
                marks = {"ukey": str(system.ukey(path))}
        return {"path": self.url, "size": self.info.get("size"), **marks}

    @cached_property
    def _place(self) -> tuple[AbstractFileSystem, str]:
        return self.place or _system(self.url)


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
        else:
            info = _info(system, path)
            if info is None or info.get("type") != "directory":
                return [] if info is None else [RemoteFile(pattern, info, (system, path))]
            found = system.find(path, detail=True)
            found = {name: info for name, info in found.items() if not _is_hidden(name.removeprefix(path))}
        files = {name: info for name, info in found.items() if info.get("type") != "directory"}
        return [RemoteFile(_address(system, name, pattern), files[name], (system, name)) for name in sorted(files)]


def _info(system: AbstractFileSystem, path: str) -> Mapping[str, Any] | None:
    """Return what a file system says of a path, None where there is nothing.

    `isdir` would be shorter, and has a web server send the whole file.
    """
    try:
        info: Mapping[str, Any] = system.info(path)
    except FileNotFoundError as error:
        cause = error.__cause__
        if cause is None or isinstance(cause, FileNotFoundError) or getattr(cause, "status", None) == _NOT_FOUND:
            return None
        raise cause from error  # fsspec says the same of a server that cannot be reached
    return info


def _has_magic(path: str, pattern: str) -> bool:
    """Whether a path is a glob: "?" begins the query of a web address."""
    return any(sign in path for sign in ("*[" if pattern.startswith("http") else "*?["))


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _sends_parts(opened: BinaryIO) -> bool:
    """Whether a server sends the end of a file without its beginning, where one answer does not hold all of it."""
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
    """Return the URL of a path that was found: in the first link of a chain that has a path, the rest is the same."""
    links = pattern.split("::")
    place = next(number for number, link in enumerate(links) if "://" in link or link == links[-1])
    return "::".join([*links[:place], system.unstrip_protocol(path), *links[place + 1 :]])


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
            f"{url}: {_brief(error)}",
            hint="can it be reached from here? access is set up as for fsspec: "
            f"the usual credentials of {protocol}, or variables FSSPEC_{protocol.upper()}_…",
        ) from error


def _brief(error: Exception) -> str:
    """Return the first line of what a package says, some of which quote all that they got."""
    first = next(iter(str(error).splitlines()), "") or type(error).__name__
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…"


def _package(error: ImportError, url: str) -> str:
    """Return what to install: the name of the module that was missing is that of its package, but for its own parts."""
    missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    return (missing.name or url.partition(":")[0]).partition(".")[0]
