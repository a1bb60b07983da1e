"""How the needed members come out of a zip: which names and sizes are safe, which folder may be around them, what is broken."""

from __future__ import annotations

import errno
import lzma
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath

from recsys_cli.data.digest import refuse_impostor
from recsys_cli.errors import DataError
from recsys_cli.events import Emit, Progress

_BLOCK = 1 << 20
_MOST_DENSE, _SMALL = 200, 64 << 20
_PLAIN = {0, stat.S_IFREG, stat.S_IFDIR}
_AGAIN = "fetch the archive again: run with --force, or pass another one with --from-file PATH"


def unpack(archive: Path, members: Sequence[str], folder: Path, *, emit: Emit) -> None:
    """Take the named files out of a zip, flat into a folder, and nothing else.

    A member is found by its file name, whether or not the zip has a top folder; `__MACOSX` and dot files are as good
    as absent.

    Args:
        archive: The zip file.
        members: File names, such as "ratings.csv".
        folder: An existing folder for them.
        emit: Told about progress in bytes.

    Raises:
        DataError: It is no zip, is cut short or damaged, has a member with an unsafe name, one that is no plain file or is
            encrypted, a needed file is not in it or empty, or all together are too large for the disk or to be true.
    """
    refuse_impostor(archive, source=str(archive))
    with _damage_named(archive), zipfile.ZipFile(archive) as opened:
        infos = _safe_files(archive, opened.infolist())
        chosen = {member: _find(archive, member, infos, wanted=members) for member in members}
        total = _checked_size(archive, chosen, folder)
        done = 0
        for member, info in chosen.items():
            for size in _extract(opened, info, folder / member):
                done += size
                emit(Progress(task=f"unpack {archive.name}", done=done, total=total, unit="bytes"))


def _checked_size(archive: Path, chosen: Mapping[str, zipfile.ZipInfo], folder: Path) -> int:
    """Return the bytes of all members, as the archive announces them: more than those are never written.

    Raises:
        DataError: One is empty, they are far larger than the archive can hold, or than the disk.
    """
    empty = [member for member, info in chosen.items() if not info.file_size]
    if empty:
        raise DataError(f"{archive}: {', '.join(empty)} in it is empty", hint=_AGAIN)
    total, stored = sum(info.file_size for info in chosen.values()), archive.stat().st_size
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
            hint="make room there, or choose another disk with --workspace",
        )
    return total


def _extract(opened: zipfile.ZipFile, info: zipfile.ZipInfo, to: Path) -> Iterator[int]:
    """Write one member, in blocks; a file with its final name is a whole one."""
    part = to.with_name(f"{to.name}.part")
    try:
        with opened.open(info) as source, part.open("wb") as target:
            while block := source.read(_BLOCK):
                target.write(block)
                yield len(block)
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _damage_named(archive: Path) -> Iterator[None]:
    """Turn what the zip reader raises about a broken archive into one message."""
    try:
        yield
    except zipfile.BadZipFile as error:
        with archive.open("rb") as file:
            is_zip = file.read(2) == b"PK"
        what = f"{archive} is cut short or damaged ({error})" if is_zip else f"{archive} is not a zip file"
        raise DataError(what, hint=_AGAIN) from error
    except OSError as error:
        if error.errno not in {None, errno.EINVAL}:  # those come of places beyond the file, and of broken streams
            raise DataError(
                f"{archive}: {error.filename or 'a member'} cannot be unpacked: {error.strerror}",
                hint="is the disk full? look at the folder's permissions, too",
            ) from error
        raise DataError(f"{archive} is damaged ({error})", hint=_AGAIN) from error
    except (zlib.error, lzma.LZMAError, EOFError, LookupError, ValueError, OverflowError, struct.error) as error:
        raise DataError(f"{archive} is damaged ({error or 'a member ends too early'})", hint=_AGAIN) from error
    except NotImplementedError as error:
        raise DataError(f"{archive} uses a compression that cannot be read here: {error}", hint=_AGAIN) from error


def _safe_files(archive: Path, infos: Iterable[zipfile.ZipInfo]) -> list[zipfile.ZipInfo]:
    """Return the members that are data files; one that tries to get out of the folder condemns the whole archive."""
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
    # The upper half of external_attr is the Unix mode where the zip was made on Unix, and 0 elsewhere.
    if stat.S_ISLNK(info.external_attr >> 16):
        return "is a link"
    if stat.S_IFMT(info.external_attr >> 16) not in _PLAIN:
        return "is no plain file"
    if info.flag_bits & 0x1:
        return "is encrypted"
    return None


def _find(archive: Path, member: str, infos: Sequence[zipfile.ZipInfo], *, wanted: Sequence[str]) -> zipfile.ZipInfo:
    """Return the least deep member with that file name."""
    named = sorted((info for info in infos if _path(info).name == member), key=_depth)
    if not named:
        present = {_path(info).name for info in infos}
        missing = ", ".join(name for name in wanted if name not in present)
        has = ", ".join(sorted(present)[:8]) or "no files"
        raise DataError(f"{archive} lacks {missing}; it has {has}", hint="is it the archive of this dataset?")
    if len(named) > 1 and _depth(named[0]) == _depth(named[1]):
        names = f"{named[0].filename!r} and {named[1].filename!r}"
        raise DataError(f"{archive} has two files {member}: {names}", hint="keep only one of them in the archive")
    return named[0]


def _path(info: zipfile.ZipInfo) -> PurePosixPath:
    # Some Windows tools write backslashes.
    return PurePosixPath(info.filename.replace("\\", "/"))


def _depth(info: zipfile.ZipInfo) -> int:
    return len(_path(info).parts)
