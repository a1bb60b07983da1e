"""A published dataset: its declarative description, its files from the publisher or from this machine, and a Source."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from recsys_cli.data.archive import TAR_SUFFIXES, unpack
from recsys_cli.data.fetch import Digest, address, by_hand_named, file_digest, refuse_impostor
from recsys_cli.data.fetch import download as fetch_file
from recsys_cli.data.raw_files import compression, unpacked_name
from recsys_cli.data.source import DatasetInfo, FetchRequest, RawTable
from recsys_cli.errors import ConfigError
from recsys_cli.events import Emit, Message
from recsys_cli.frozen import Frozen

PART = "{part}"
"""Placeholder in file names for a part: a day, a month or a category."""

Convert = Callable[[Path, Sequence[Path], Emit], None]
"""Writes Parquet tables into a folder from the publisher's files, which are deleted afterwards."""


class Options(Frozen):
    """The options of a published dataset; subclasses select parts of it."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The selected parts, as in the file names."""
        return ("",)


@dataclass(frozen=True)
class Download:
    """A file of the publisher.

    Attributes:
        name: Name of the file.
        url: Public address; empty for a login or a file that has moved.
        members: Required files of an archive; empty for a file used as it is.
        folder: Subfolder for the members, if two archives have files of the same name.
        digest: Published digest.
    """

    name: str
    url: str = ""
    members: tuple[str, ...] = ()
    folder: str = ""
    digest: Digest | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the required files."""
        return self.members or (self.name,)

    def of(self, part: str) -> Download:
        """Return the download of a part."""
        url = self.url.replace(PART, part)
        members = tuple(member.replace(PART, part) for member in self.members)
        return replace(self, name=self.name.replace(PART, part), url=url, members=members)


@dataclass(frozen=True, kw_only=True)
class Description(DatasetInfo):
    """A published dataset: its catalog entry, and how to get and read it.

    Attributes:
        downloads: The publisher's files, with PART in the names of selectable ones.
        tables: The raw tables, "interactions" first; paths are relative to the dataset's folder.
        access: `download`; `login` for a form or an account; `moved` for files gone from their published address.
        steps: How to get the files by hand, for datasets without a download.
        options: Class of the options.
        convert: Conversion to Parquet, for formats other than delimited text.
    """

    downloads: tuple[Download, ...]
    tables: tuple[RawTable, ...]
    rows: int | None = None
    size: int | None = None
    access: Literal["download", "login", "moved"] = "download"
    steps: str = ""
    options: type[Options] = Options
    convert: Convert | None = None

    def tables_in(self, folder: Path, parts: Sequence[str]) -> tuple[RawTable, ...]:
        """Return the tables of the selected parts in a folder."""
        return tuple(replace(table, files=_files(table, folder, parts)) for table in self.tables)


def _files(table: RawTable, folder: Path, parts: Sequence[str]) -> tuple[Path, ...]:
    names = dict.fromkeys(str(file).replace(PART, part) for part in parts for file in table.files)
    return tuple(stored(folder, name) for name in names)


def stored(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, compressed or not as it is there."""
    return next((folder / other for other in variants(name) if (folder / other).is_file()), folder / name)


def variants(name: str) -> tuple[str, ...]:
    """Return the names of a file, as published, uncompressed and with gzip."""
    plain = unpacked_name(name)
    return tuple(dict.fromkeys((name, plain, f"{plain}.gz")))


_UNPACKABLE = (".7z", ".rar")


def collect(downloads: Sequence[Download], given: Path, folder: Path, *, emit: Emit) -> None:
    """Fill a folder with the required files of all downloads.

    Plain files are linked where the disk allows it, and copied otherwise; archives are unpacked.

    `given` is the publisher's archive or file, a folder with all of them, or one with their unpacked content.

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
    elif given.name.lower().endswith((".zip", *TAR_SUFFIXES)):
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


def place(download: Download, archive: Path, folder: Path, *, emit: Emit) -> None:
    """Unpack the members of a download, or link the file itself."""
    if download.members:
        unpack(archive, download.members, _made(folder / download.folder), emit=emit)
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
        if not download.members:
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
    unpack(given, names, _made(folder / downloads[0].folder), emit=emit)


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


def _names_in(archive: Path) -> set[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            return {PurePosixPath(name).name for name in opened.namelist()}
    except (zipfile.BadZipFile, OSError, ValueError):  # `unpack` reports the damage
        return set()


def _warn_of_other(file: Path, download: Download, emit: Emit) -> None:
    """Warn of another digest than the published one, except of a file in another compression."""
    if download.digest and Path(download.name).suffix == file.suffix and (wrong := download.digest.mismatch(file)):
        emit(Message(f"{file} differs from the published {download.name}: {wrong}; using it anyway", level="warning"))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file.resolve(), to)
    except OSError:  # another disk, or a file system without links
        shutil.copyfile(file, to)


FORMAT = 2  # version of the converted files


class Published:
    """A published dataset, with a selection of its parts."""

    def __init__(self, description: Description, options: Options) -> None:
        self.info = description
        self._options = options

    @property
    def downloads(self) -> tuple[Download, ...]:
        """The publisher's files of the selected parts."""
        expanded = (one.of(part) for part in self._options.parts for one in self.info.downloads)
        return tuple(dict.fromkeys(expanded))

    def identity(self) -> dict[str, object]:
        """Return the names and digests of the files, and the options."""
        files = {one.name: one.digest.value if one.digest else None for one in self.downloads}
        return {"format": FORMAT, "files": files, **self._options.model_dump(mode="json")}

    def fetch(self, request: FetchRequest, emit: Emit) -> dict[str, object]:
        """Fill the folder with the files of the tables.

        Raises:
            ConfigError: The files have to be fetched by hand, or the local ones are incomplete.
            DataError: A download, an archive or a file is wrong or damaged.
        """
        if request.from_file:
            collect(self.downloads, request.from_file, request.folder, emit=emit)
            origin = str(request.from_file)
        else:
            origin = self._download(request, emit)
        originals = [stored(request.folder / one.folder, name) for one in self.downloads for name in one.files]
        facts: dict[str, object] = {
            "origin": origin,
            "bytes": sum(file.stat().st_size for file in originals),
            "md5": {str(file.relative_to(request.folder)): file_digest(file) for file in originals},
            "verified": {one.name: _verified(one, request) for one in self.downloads},
        }
        if self.info.convert:
            self.info.convert(request.folder, originals, emit)
            _drop(originals, request.folder)
        return facts

    def tables(self, folder: Path) -> tuple[RawTable, ...]:
        """Describe the files in a folder."""
        return self.info.tables_in(folder, self._options.parts)

    def _download(self, request: FetchRequest, emit: Emit) -> str:
        urls = [(one, address(one.name, one.url, request.mirror)) for one in self.downloads]
        for one, url in urls:
            if not url:
                raise self._by_hand()
            target = request.cache / self.info.name / one.name
            with by_hand_named(self._by_hand_hint()):
                fetch_file(url, target, digest=one.digest, emit=emit)
            place(one, target, request.folder, emit=emit)
            if one.digest is None or not one.members:  # nothing to verify a second use, or in the folder already
                target.unlink()
        return urls[0][1]

    def _by_hand(self) -> ConfigError:
        described = self.info
        why = "needs a login at its publisher" if described.access == "login" else "has no public address any more"
        return ConfigError(f"{described.name} {why}, so it cannot be downloaded here", hint=self._by_hand_hint())

    def _by_hand_hint(self) -> str:
        described = self.info
        command = described.name if self._options == described.options() else "CONFIG"
        single = len(self.downloads) == 1
        file = self.downloads[0].name if single else f"FOLDER ({expected(self.downloads)})"
        steps = described.steps or f"take {expected(self.downloads, content=False)}"
        return f"{steps}: {described.homepage}; then run: recsys download {command} --from-file {file}"


def _verified(download: Download, request: FetchRequest) -> bool | None:
    """Whether a fetched file has its published digest; None without a digest, or for unpacked files of an archive."""
    if download.digest is None:
        return None
    if not download.members:
        return download.digest.matches(stored(request.folder / download.folder, download.name))
    if request.from_file is None:
        return True  # the download was refused otherwise
    packed = request.from_file / download.name if request.from_file.is_dir() else request.from_file
    return download.digest.matches(packed) if packed.is_file() else None


def _drop(originals: list[Path], folder: Path) -> None:
    for file in originals:
        if file.parent == folder:
            file.unlink()
        else:
            shutil.rmtree(file.parent, ignore_errors=True)
