"""Files of a published dataset from a local archive, folder or file."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from recsys_cli.data.archive import unpack
from recsys_cli.data.digest import refuse_impostor
from recsys_cli.data.published.description import Download, variants
from recsys_cli.data.streams import compression, unpacked_name
from recsys_cli.data.tarball import SUFFIXES, unpack_tar
from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit, Message

_UNPACKABLE = (".7z", ".rar")


def collect(downloads: Sequence[Download], given: Path, folder: Path, *, emit: Emit) -> None:
    """Fill a folder with the required files of all downloads.

    Plain files are linked where the disk allows it, and copied otherwise; archives are unpacked.

    Args:
        downloads: The publisher's files.
        given: The publisher's archive or file, a folder with all of them, or one with their unpacked content.
        folder: Folder to fill.
        emit: Receives progress, and a warning for a file with another digest than the published one.

    Raises:
        ConfigError: A file is missing, or its format has to be unpacked by hand.
        DataError: An archive is damaged or lacks a file.
    """
    if not given.exists():
        raise ConfigError(f"there is no file {given}", hint=f"--from-file takes {expected(downloads)}")
    if given.suffix.lower() in _UNPACKABLE:
        raise ConfigError(
            f"{given} cannot be unpacked here", hint=f"unpack it (7z x {given.name}), and pass the folder of its files"
        )
    if given.is_dir():
        for download in downloads:
            _from_folder(download, given, folder, emit)
    elif is_archive(given):
        _from_archive(downloads, given, folder, emit)
    else:
        _from_one_file(downloads, given, folder, emit)


def expected(downloads: Sequence[Download], *, content: bool = True) -> str:
    """Return the publisher's files in words, with the content of an archive in place of it for --from-file."""
    names = [download.name for download in downloads]
    shown = ", ".join(names) if len(names) <= 4 else f"{names[0]} to {names[-1]}"
    if not content:
        return shown
    if len(downloads) > 1:
        return f"a folder with {shown}"
    return f"the path of {shown}" + (", or the folder of its unpacked files" if downloads[0].members else "")


def is_archive(path: Path) -> bool:
    """Whether a file is a zip or a tar archive, by its name."""
    return path.name.lower().endswith((".zip", *SUFFIXES))


def place(download: Download, archive: Path, folder: Path, *, emit: Emit) -> None:
    """Unpack the members of a download, or link the file itself."""
    if download.members:
        _unpack(archive, download.members, _made(folder / download.folder), emit)
    else:
        _link(archive, folder / download.name)


def _from_folder(download: Download, given: Path, folder: Path, emit: Emit) -> None:
    packed = given / download.name
    if download.members and packed.is_file():
        _warn_of_other(packed, download, emit)
        place(download, packed, folder, emit=emit)
        return
    stem = download.name.partition(".")[0]
    places = [given / download.folder, given / stem, given]
    for name in download.files:
        found = next((p / other for p in places for other in variants(name) if (p / other).is_file()), None)
        if found is None:
            raise ConfigError(
                f"{given} has neither {download.name} nor {name}" if download.members else f"{given} has no {name}",
                hint=f"--from-file takes {expected([download])}",
            )
        _warn_of_other(found, download, emit)
        _link(found, _made(folder / download.folder) / found.name)


def _from_archive(downloads: Sequence[Download], given: Path, folder: Path, emit: Emit) -> None:
    if len(downloads) > 1 and any(download.folder for download in downloads):
        raise ConfigError(
            f"{given} is one of {len(downloads)} archives", hint=f"--from-file takes {expected(downloads)}"
        )
    if len(downloads) == 1:
        _warn_of_other(given, downloads[0], emit)
    names = [name for download in downloads for name in download.files]
    if given.suffix.lower() == ".zip":
        present = _names_in(given)
        names = [next((other for other in variants(name) if other in present), name) for name in names]
    _unpack(given, names, _made(folder / downloads[0].folder), emit)


def _from_one_file(downloads: Sequence[Download], given: Path, folder: Path, emit: Emit) -> None:
    names = [(download, name) for download in downloads for name in download.files]
    if len(names) > 1 and any(given.name in variants(name) for _, name in names):  # one file of their folder
        for each in downloads:
            _from_folder(each, given.parent, folder, emit)
        return
    if len(names) > 1:
        raise ConfigError(f"{given} is one of {len(names)} files", hint=f"--from-file takes {expected(downloads)}")
    download, name = names[0]
    refuse_impostor(given, source=str(given))
    _warn_of_other(given, download, emit)
    suffix = given.name[len(unpacked_name(given.name)) :] if compression(given.name) else ""
    _link(given, folder / f"{unpacked_name(name)}{suffix}")


def _unpack(archive: Path, names: Sequence[str], folder: Path, emit: Emit) -> None:
    extract = unpack_tar if archive.name.lower().endswith(SUFFIXES) else unpack
    extract(archive, names, folder, emit=emit)


def _names_in(archive: Path) -> set[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            return {PurePosixPath(name).name for name in opened.namelist()}
    except (zipfile.BadZipFile, OSError, ValueError):  # `unpack` reports the damage
        return set()


def _warn_of_other(file: Path, download: Download, emit: Emit) -> None:
    if download.digest is None or file.name != download.name:
        return
    wrong = download.digest.mismatch(file)
    if wrong:
        emit(Message(f"{file} differs from the published {download.name}: {wrong}; using it anyway", level="warning"))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file.resolve(), to)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(file, to)
