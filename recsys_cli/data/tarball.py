"""Extraction of required members from a tar archive, with checks of types, sizes and damage."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from recsys_cli.data.digest import refuse_impostor
from recsys_cli.errors import DataError
from recsys_cli.events import Emit, Progress

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_BLOCK = 1 << 20
_MOST_DENSE, _SMALL = 200, 64 << 20
_AGAIN = "fetch the archive again with --force, or pass another one with --from-file PATH"


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
                    _refuse_size(archive, info, folder)
                    _write(source, folder / name, f"unpack {archive.name}", info.size, emit)
                    missing.remove(name)
                if not missing:
                    return
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise DataError(f"{archive} is not a tar archive, or is damaged ({error})", hint=_AGAIN) from error
    raise DataError(f"{archive} lacks {', '.join(missing)}", hint="pass the archive of this dataset")


def _refuse_size(archive: Path, info: tarfile.TarInfo, folder: Path) -> None:
    if info.size > max(_SMALL, _MOST_DENSE * archive.stat().st_size):
        raise DataError(f"{archive}: {info.name} claims {info.size:,} bytes, more than it can hold", hint=_AGAIN)
    free = shutil.disk_usage(folder).free
    if info.size > free:
        raise DataError(
            f"{archive}: {info.name} takes {info.size:,} bytes, and the disk of {folder} has {free:,} left",
            hint="free some space, or choose another disk with --workspace",
        )


def _write(source: IO[bytes], to: Path, task: str, total: int, emit: Emit) -> None:
    done = 0
    with to.open("wb") as target:
        while block := source.read(_BLOCK):
            target.write(block)
            done += len(block)
            emit(Progress(task=task, done=done, total=total, unit="bytes"))
