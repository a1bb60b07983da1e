"""Files of a workspace: atomic writes, bounded reads, checksums."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import re
import shlex
import shutil
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from recsys_cli.errors import ConfigError, DataError, DiskFullError, MissingArtifactError, RecsysError

_BLOCK = 1 << 20
MANIFEST = "manifest.json"

Checksums = dict[str, tuple[int, str]]
"""Size and CRC-32 of each file, by its path in the artifact's folder."""

_verified: dict[Path, tuple[int, int, str]] = {}
"""Size, modification time and checksum of the files already verified by this process."""


def checksum_of(path: Path) -> str:
    """Compute the CRC-32 of a file, as eight hexadecimal digits."""
    crc = 0
    buffer = memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
    return f"{crc:08x}"


def checksum_of_json(value: Any) -> str:
    """Compute the CRC-32 of a JSON value, independent of formatting."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def checksums(folder: Path, files: Iterable[Path]) -> Checksums:
    """Return size and checksum of files, by path relative to a folder."""
    return {file.relative_to(folder).as_posix(): (file.stat().st_size, checksum_of(file)) for file in sorted(files)}


def verify(folder: Path, expected: Mapping[str, Any], *, hint: str) -> None:
    """Verify the `checksums` of files, once per process and file.

    Raises:
        MissingArtifactError: A file is missing.
        DataError: A file is damaged.
    """
    check_sizes(folder, expected, hint=hint)
    for name, (size, checksum) in expected.items():
        path = (folder / name).absolute()
        stamp = (size, path.stat().st_mtime_ns, checksum)
        if _verified.get(path) == stamp:
            continue
        if checksum_of(path) != checksum:
            raise DataError(f"{path} is damaged: its content does not match its checksum", hint=hint)
        _verified[path] = stamp


def check_sizes(folder: Path, expected: Mapping[str, Any], *, hint: str) -> None:
    """Compare the sizes of files, all of them in the folder, with the expected ones."""
    for name, (size, _) in expected.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise DataError(f"{folder}: its manifest names {name}, which is not in the folder", hint=hint)
        try:
            actual = path.stat().st_size
        except OSError as error:
            raise MissingArtifactError(f"{path} is missing ({error.strerror})", hint=hint) from error
        if actual != size:
            raise DataError(f"{path} is damaged: it has {actual:,} bytes instead of {size:,}", hint=hint)


CHECKSUM = "checksum"
"""Key of a JSON file for the checksum of all other keys."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FULL_TEXT = re.compile(
    r"no space left on device|disk quota exceeded|file too large|os error (28|27|122)\b", re.IGNORECASE
)
_GIB = 1 << 30
_PARTIAL = ".partial"
_YOUNG = 60
"""Seconds after the last write of a temporary file, in which its lock may not be taken yet."""


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically, with a checksum for `reading.read_json`."""
    plain = json.loads(json.dumps(value, default=str))
    plain.pop(CHECKSUM, None)
    write_text(path, json.dumps({**plain, CHECKSUM: checksum_of_json(plain)}, indent=2) + "\n")


def check_output(path: Path, *, force: bool = True) -> None:
    """Refuse a path of the user below several new folders, as by a typing error, and without `force` an existing file.

    Raises:
        ConfigError: The parent of its folder does not exist, or the file exists.
    """
    if not (above := path.parent.parent).is_dir():
        raise ConfigError(
            f"{path}: {above} is no folder", hint=f"name another path, or mkdir -p {shlex.quote(str(above))}"
        )
    if path.exists() and not force:
        raise ConfigError(f"{path} already exists", hint="choose another file with --out, or overwrite it: --force")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; at the end it is flushed to disk and renamed.

    What a kill leaves of it is removed by the next write of the path, or the next command of the workspace.
    """
    if path.exists() and not path.is_file():  # a device would be replaced by a file
        raise ConfigError(f"{path} is {'a folder' if path.is_dir() else 'no regular file'}", hint="name a file")
    made = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{_PARTIAL}")
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path.parent.glob(f".{glob.escape(path.name)}.*{_PARTIAL}"))
        try:
            with made.open("wb") as held:
                fcntl.flock(held, fcntl.LOCK_SH)  # until the end of the process, for `remove_abandoned`
                yield made
                flush(made)
                made.replace(path)
        except BaseException:
            with suppress(OSError):
                made.unlink(missing_ok=True)
            raise
        flush(path.parent)


def remove_abandoned(files: Iterable[Path]) -> None:
    """Remove the temporary files of dead processes: those without a lock, a minute after their last write."""
    for file in files:
        with suppress(OSError):  # in use, gone, or in a read-only folder
            if time.time() - file.stat().st_mtime > _YOUNG:
                with file.open("rb") as opened:
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    file.unlink()


def flush(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk (fsync)."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:  # unsupported for folders by some network file systems
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:
            raise
    finally:
        os.close(opened)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to errors about a full disk; few libraries do so."""
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        if is_disk_full(error):
            raise disk_full(path) from error
        raise


def is_disk_full(error: BaseException) -> bool:
    """Whether an error of any library reports a full disk."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return bool(_FULL_TEXT.search(str(error)))


def disk_full(path: Path) -> DiskFullError:
    """Return the error with the path and the free space."""
    path = path.absolute()
    usage = shutil.disk_usage(next(folder for folder in (path, *path.parents) if folder.exists()))
    space = f"{usage.free / _GIB:.2f} of {usage.total / _GIB:.2f} GiB are free on its file system"
    return DiskFullError(
        f"no space left to write {path}: {space}",
        hint="free some space or choose another --workspace, then run the same command again; "
        "also check quotas and the file size limit (ulimit -f)",
    )


MAX_JSON = 1 << 27
"""Maximum bytes of a JSON file: a manifest of a million files has fewer."""


def read_json(path: Path, *, hint: str, expected: Mapping[str, type] | None = None) -> dict[str, Any]:
    """Read a JSON object of `writing.write_json`, with required keys and types; the checksum is optional.

    Raises:
        MissingArtifactError: The file is missing.
        DataError: The file is damaged.
    """
    with whole(path, hint=hint):
        if (size := path.stat().st_size) > MAX_JSON:
            raise ValueError(f"{size:,} bytes are above the limit of {MAX_JSON:,}")
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        checksum = value.pop(CHECKSUM, None)
        if checksum is not None and checksum != checksum_of_json(value):
            raise ValueError("its content does not match its checksum")
        for key, kind in (expected or {}).items():
            if not isinstance(value.get(key), kind):
                raise ValueError(f"{key!r} is {'of another type' if key in value else 'missing'}")
    return value


def read_text(path: Path, *, hint: str) -> str:
    """Read a text file."""
    with whole(path, hint=hint):
        return path.read_text(encoding="utf-8")


@contextmanager
def whole(path: Path, *, hint: str) -> Iterator[None]:
    """Convert errors of parsers of a file into errors with its name.

    Raises:
        MissingArtifactError: The file is missing.
        DataError: The file is damaged.
    """
    try:
        yield
    except RecsysError:
        raise
    except FileNotFoundError as error:
        raise MissingArtifactError(f"{path} is missing", hint=hint) from error
    except MemoryError:
        raise
    except Exception as error:  # error types differ between parsers
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(f"{path} is damaged: {reason}", hint=hint) from error


class FileChecksums:
    """Cache of checksums by path, size and modification time, written at the end; a damaged cache file is replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> FileChecksums:
        """Read the cache."""
        self._cached, self._new = self._load(), dict[str, object]()
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is new."""
        if self._new:
            with suppress(OSError, DiskFullError):  # a cache: a read-only or full workspace is read without it
                write_json(self._path, {**self._cached, **self._new})

    def of(self, file: Path) -> str:
        """Return the checksum of a file."""
        try:
            status, name = file.stat(), str(file.absolute())
            stamp = [status.st_size, status.st_mtime_ns]
            entry = self._cached.get(name)
            if isinstance(entry, list) and entry[:2] == stamp:
                return str(entry[2])
            checksum = checksum_of(file)
        except OSError as error:
            raise DataError(f"cannot read {file}: {error.strerror}") from error
        self._new[name] = [*stamp, checksum]
        return checksum

    def _load(self) -> dict[str, object]:
        try:
            return read_json(self._path, hint="")
        except (MissingArtifactError, DataError):
            return {}
