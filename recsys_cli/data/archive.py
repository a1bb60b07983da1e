"""Extraction of required members from a zip or tar archive, with checks of names, types, sizes and damage."""

from __future__ import annotations

import errno
import lzma
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from recsys_cli.data.fetch import refuse_impostor
from recsys_cli.errors import DataError
from recsys_cli.events import Emit, Progress

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_BLOCK = 1 << 20
_MOST_DENSE, _SMALL = 200, 64 << 20
_PLAIN = {0, stat.S_IFREG, stat.S_IFDIR}
_AGAIN = "fetch the archive again with --force, or pass another one with --from-file PATH"


def unpack(archive: Path, members: Sequence[str], folder: Path, *, emit: Emit) -> None:
    """Extract the given files of a zip archive into a flat folder.

    Members are matched by file name, with or without a top folder; `__MACOSX` and dot files are ignored.

    Args:
        archive: The zip file.
        members: File names, such as "ratings.csv".
        folder: An existing folder.
        emit: Receives the progress in bytes.

    Raises:
        DataError: The archive is not a zip file, is damaged, or has an unsafe, special or encrypted member; a required
            file is missing or empty; or the total size exceeds the disk or a plausible compression ratio.
    """
    refuse_impostor(archive, source=str(archive))
    with _damage_named(archive), zipfile.ZipFile(archive) as opened:
        infos = _safe_files(archive, opened.infolist())
        chosen = {member: _find(archive, member, infos, required=members) for member in members}
        total = _checked_size(archive, chosen, folder)
        done = 0
        for member, info in chosen.items():
            with opened.open(info) as source:
                for size in _write(source, folder / member):
                    done += size
                    emit(Progress(task=f"unpack {archive.name}", done=done, total=total, unit="bytes"))


def _checked_size(archive: Path, chosen: Mapping[str, zipfile.ZipInfo], folder: Path) -> int:
    """Return the total declared size of the members, in bytes; extraction never writes more.

    Raises:
        DataError: A member is empty, or the total exceeds a plausible compression ratio or the disk.
    """
    empty = [member for member, info in chosen.items() if not info.file_size]
    if empty:
        raise DataError(f"{archive}: {', '.join(empty)} in it is empty", hint=_AGAIN)
    total = sum(info.file_size for info in chosen.values())
    _refuse_size(archive, total, folder)
    return total


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
    """Convert the zip reader's errors about a damaged archive into `DataError`."""
    try:
        yield
    except zipfile.BadZipFile as error:
        with archive.open("rb") as file:
            is_zip = file.read(2) == b"PK"
        what = f"{archive} is cut short or damaged ({error})" if is_zip else f"{archive} is not a zip file"
        raise DataError(what, hint=_AGAIN) from error
    except OSError as error:
        if error.errno not in {
            None,
            errno.EINVAL,
        }:  # None and EINVAL come from offsets beyond the file and from broken streams
            raise DataError(
                f"{archive}: {error.filename or 'a member'} cannot be unpacked: {error.strerror}",
                hint="check the free disk space and the folder's permissions",
            ) from error
        raise DataError(f"{archive} is damaged ({error})", hint=_AGAIN) from error
    except (zlib.error, lzma.LZMAError, EOFError, LookupError, ValueError, OverflowError, struct.error) as error:
        raise DataError(f"{archive} is damaged ({error or 'a member ends too early'})", hint=_AGAIN) from error
    except NotImplementedError as error:
        raise DataError(f"{archive} uses an unsupported compression: {error}", hint=_AGAIN) from error


def _safe_files(archive: Path, infos: Iterable[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """Return the data files of an archive; one unsafe member rejects the whole archive."""
    kept = []
    for info in infos:
        reason = _unsafe(info)
        if reason:
            raise DataError(f"{archive}: member {info.filename!r} {reason}; nothing was unpacked", hint=_AGAIN)
        hidden = any(part == "__MACOSX" or part.startswith(".") for part in _path(info).parts)
        if not info.is_dir() and not hidden:
            kept.append(info)
    return kept


def _unsafe(info: zipfile.ZipInfo) -> str | None:
    path = _path(info)
    if path.is_absolute() or PureWindowsPath(info.filename).drive:
        return "has an absolute path"
    if ".." in path.parts:
        return "points out of the folder"
    # The upper half of external_attr is the Unix mode for zips made on Unix, else 0.
    if stat.S_ISLNK(info.external_attr >> 16):
        return "is a link"
    if stat.S_IFMT(info.external_attr >> 16) not in _PLAIN:
        return "is not a regular file"
    if info.flag_bits & 0x1:
        return "is encrypted"
    return None


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


def unpack_tar(archive: Path, members: Sequence[str], folder: Path, *, emit: Emit) -> None:
    """Extract the given files of a tar archive into a flat folder, in one pass.

    Members are matched by file name, and only regular files; the paths in the archive are never used.

    Raises:
        DataError: The archive is not a tar file, is damaged, lacks a file, or has one too large for the disk.
    """
    refuse_impostor(archive, source=str(archive))
    missing = list(members)
    try:
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
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise DataError(f"{archive} is not a tar archive, or is damaged ({error})", hint=_AGAIN) from error
    raise DataError(f"{archive} lacks {', '.join(missing)}", hint="pass the archive of this dataset")
