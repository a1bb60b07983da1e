"""Declarative description of a published dataset: files at the publisher, tables and license."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from recsys_cli.data.digest import Digest
from recsys_cli.data.source import DatasetInfo, RawColumn, RawTable, RawType
from recsys_cli.data.streams import unpacked_name
from recsys_cli.events import Emit

PART = "{part}"
"""Placeholder in file names for a part: a day, a month or a category."""

Convert = Callable[[Path, Sequence[Path], Emit], None]
"""Writes Parquet tables into a folder from the publisher's files, which are deleted afterwards."""


class Options(BaseModel):
    """The options of a published dataset; subclasses select parts of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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


@dataclass(frozen=True)
class Description:
    """A published dataset.

    Attributes:
        name: Name in the catalog.
        licence: Short name of the license.
        homepage: The publisher's page.
        downloads: The publisher's files, with PART in the names of selectable ones.
        tables: The raw tables, "interactions" first; paths are relative to the dataset's folder.
        rows: Number of interactions; None if it depends on options.
        size: Size of the download in bytes, as published; None if unknown.
        access: `download`; `login` for a form or an account; `moved` for files gone from their published address.
        steps: How to get the files by hand, for datasets without a download.
        options: Class of the options.
        convert: Conversion to Parquet, for formats other than delimited text.
        notice: License notice for downloads.
    """

    name: str
    licence: str
    homepage: str
    downloads: tuple[Download, ...]
    tables: tuple[RawTable, ...]
    rows: int | None = None
    size: int | None = None
    access: Literal["download", "login", "moved"] = "download"
    steps: str = ""
    options: type[Options] = Options
    convert: Convert | None = None
    notice: str = ""

    @property
    def info(self) -> DatasetInfo:
        """The catalog entry."""
        return DatasetInfo(
            self.name, self.rows, self.size, self.licence, self.homepage, notice=self.notice, access=self.access
        )

    def downloads_of(self, parts: Sequence[str]) -> tuple[Download, ...]:
        """Return the downloads of the selected parts."""
        expanded = (download.of(part) for part in parts for download in self.downloads)
        return tuple(dict.fromkeys(expanded))

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


def columns(dtype: RawType, *names: str, nullable: bool = False) -> tuple[RawColumn, ...]:
    """Return columns of one type."""
    return tuple(RawColumn(name, dtype, nullable=nullable) for name in names)


def time(name: str, how: str = "iso") -> RawColumn:
    """Return a time column in a format of `RawColumn.time`."""
    return RawColumn(name, None if how not in {"s", "ms"} else "int64", time=how)
