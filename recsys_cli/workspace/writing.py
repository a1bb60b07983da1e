"""Atomic writes of files."""

from __future__ import annotations

import errno
import fcntl
import glob
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from recsys_cli.errors import ConfigError, DiskFullError
from recsys_cli.workspace.checksums import checksum_of_json

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


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; at the end it is flushed to disk and renamed.

    What a kill leaves of it is removed by the next write of the path, or the next command of the workspace.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder", hint="name a file")
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
