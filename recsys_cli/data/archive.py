"""Extraction of required members from a zip or tar archive, by file name alone, with checks of sizes and damage."""

from __future__ import annotations

import errno
import lzma
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from recsys_cli.data.fetch import refuse_impostor
from recsys_cli.errors import DataError
from recsys_cli.events import Emit, Progress

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_BLOCK = 1 << 20
_MOST_DENSE, _SMALL = 200, 64 << 20
_AGAIN = "fetch the archive again with --force, or pass another one with --from-file PATH"


def unpack(archive: Path, members: Sequence[str], folder: Path, *, emit: Emit) -> None:
    """Extract the given files of a zip or tar archive into a flat folder.

    Members are matched by file name, with or without a top folder, and only regular files: the paths in the archive are never
    used. `__MACOSX` and dot files are ignored.

    Raises:
        DataError: The archive is of another kind, damaged or encrypted; a required file is missing or empty; or the total
            size exceeds the disk or a plausible compression ratio.
    """
    refuse_impostor(archive, source=str(archive))
    with _damage_named(archive):
        extract = _of_tar if archive.name.lower().endswith(TAR_SUFFIXES) else _of_zip
        extract(archive, members, folder, emit)


def _of_zip(archive: Path, members: Sequence[str], folder: Path, emit: Emit) -> None:
    with zipfile.ZipFile(archive) as opened:
        infos = list(filter(_is_data, opened.infolist()))
        chosen = {member: _find(archive, member, infos, required=members) for member in members}
        empty = [member for member, info in chosen.items() if not info.file_size]
        if empty:
            raise DataError(f"{archive}: {', '.join(empty)} in it is empty", hint=_AGAIN)
        total = sum(info.file_size for info in chosen.values())
        _refuse_size(archive, total, folder)
        done = 0
        for member, info in chosen.items():
            with opened.open(info) as source:
                for size in _write(source, folder / member):
                    done += size
                    emit(Progress(task=f"unpack {archive.name}", done=done, total=total, unit="bytes"))


def _of_tar(archive: Path, members: Sequence[str], folder: Path, emit: Emit) -> None:
    """Extract in one pass."""
    missing = list(members)
    with tarfile.open(archive, "r|*") as opened:
        for info in opened:
            name = PurePosixPath(info.name).name
            source = opened.extractfile(info) if info.isreg() and name in missing else None
            if source is not None:
                _refuse_size(archive, info.size, folder)
                done = 0
                for size in _write(source, folder / name):
                    done += size
                    emit(Progress(task=f"unpack {archive.name}", done=done, total=info.size, unit="bytes"))
                missing.remove(name)
            if not missing:
                return
    raise DataError(f"{archive} lacks {', '.join(missing)}", hint="pass the archive of this dataset")


def _refuse_size(archive: Path, total: int, folder: Path) -> None:
    """Refuse members that exceed a plausible compression ratio or the disk."""
    stored = archive.stat().st_size
    if total > max(_SMALL, _MOST_DENSE * stored):
        raise DataError(
            f"{archive}: {stored:,} bytes would unpack to {total:,}, more than {_MOST_DENSE} times as many; "
            "nothing was unpacked",
            hint=_AGAIN,
        )
    free = shutil.disk_usage(folder).free
    if total > free:
        raise DataError(
            f"{archive}: unpacking takes {total:,} bytes, and the disk of {folder} has {free:,} left",
            hint="free some space, or choose another disk with --workspace",
        )


def _write(source: IO[bytes], to: Path) -> Iterator[int]:
    """Write one member in blocks, to a temporary name until it is complete; yield the sizes of the blocks."""
    part = to.with_name(f"{to.name}.part")
    try:
        with part.open("wb") as target:
            while block := source.read(_BLOCK):
                target.write(block)
                yield len(block)
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _damage_named(archive: Path) -> Iterator[None]:
    """Convert the errors of the readers of archives into `DataError`."""
    try:
        yield
    except (
        zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, LookupError, ValueError, OverflowError,
        struct.error, RuntimeError,
    ) as error:  # fmt: skip
        reason = error or "a member ends too early"
        raise DataError(f"{archive} is damaged, or of another format ({reason})", hint=_AGAIN) from error
    except OSError as error:
        # None and EINVAL come from offsets beyond the file and from broken streams
        if error.errno in {None, errno.EINVAL}:
            raise DataError(f"{archive} is damaged ({error})", hint=_AGAIN) from error
        raise DataError(
            f"{archive}: {error.filename or 'a member'} cannot be unpacked: {error.strerror}",
            hint="check the free disk space and the folder's permissions",
        ) from error


def _is_data(info: zipfile.ZipInfo) -> bool:
    """Whether a member is a regular file and not hidden."""
    # The upper half of external_attr is the Unix mode for zips made on Unix, else 0.
    is_regular = stat.S_IFMT(info.external_attr >> 16) in {0, stat.S_IFREG} and not info.is_dir()
    return is_regular and not any(part == "__MACOSX" or part.startswith(".") for part in _path(info).parts)


def _find(archive: Path, member: str, infos: Sequence[zipfile.ZipInfo], *, required: Sequence[str]) -> zipfile.ZipInfo:
    """Return the member with a file name at the lowest depth."""
    named = sorted((info for info in infos if _path(info).name == member), key=_depth)
    if not named:
        present = {_path(info).name for info in infos}
        missing = ", ".join(name for name in required if name not in present)
        has = ", ".join(sorted(present)[:8]) or "no files"
        raise DataError(f"{archive} lacks {missing}; it has {has}", hint="pass the archive of this dataset")
    if len(named) > 1 and _depth(named[0]) == _depth(named[1]):
        names = f"{named[0].filename!r} and {named[1].filename!r}"
        raise DataError(f"{archive} has two files {member}: {names}", hint="keep only one of them in the archive")
    return named[0]


def _path(info: zipfile.ZipInfo) -> PurePosixPath:
    # Some Windows tools write backslashes.
    return PurePosixPath(info.filename.replace("\\", "/"))


def _depth(info: zipfile.ZipInfo) -> int:
    return len(_path(info).parts)
